"""The commands, in the order in which help shows them. Each hands a value to the output."""

from lakestate.cli.commands.doctor import doctor
from lakestate.cli.commands.du import du
from lakestate.cli.commands.fsck import fsck
from lakestate.cli.commands.jobs import epochs, jobs, show
from lakestate.cli.commands.plan import plan
from lakestate.cli.commands.rollback import rollback
from lakestate.cli.commands.state import export, sql, state
from lakestate.cli.commands.tags import tag, tags, untag
from lakestate.cli.commands.upkeep import compact, retain

LOOKING = [jobs, epochs, show, state, sql, du, compact, plan, fsck, doctor]
CHANGING = [tags, tag, untag, export, retain, rollback]
COMMANDS = [*LOOKING, *CHANGING]
"""All commands: first those that only look, fsck --repair and doctor excepted."""

__all__ = ["CHANGING", "COMMANDS", "LOOKING"]
