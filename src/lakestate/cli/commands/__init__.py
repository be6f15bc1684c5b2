"""The commands, in the order in which help shows them. Each hands a value to the output."""

from lakestate.cli.commands.doctor import doctor
from lakestate.cli.commands.fsck import fsck
from lakestate.cli.commands.jobs import epochs, jobs, show
from lakestate.cli.commands.state import export, sql, state
from lakestate.cli.commands.tags import tag, tags, untag

COMMANDS = [jobs, epochs, show, state, sql, tags, tag, untag, fsck, export, doctor]
"""All commands."""

__all__ = [
    "COMMANDS",
    "doctor",
    "epochs",
    "export",
    "fsck",
    "jobs",
    "show",
    "sql",
    "state",
    "tag",
    "tags",
    "untag",
]
