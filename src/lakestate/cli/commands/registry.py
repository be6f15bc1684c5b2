"""All commands, in the order in which help shows them."""

from lakestate.cli.commands.changes import diff, history
from lakestate.cli.commands.doctor import doctor
from lakestate.cli.commands.du import du
from lakestate.cli.commands.fork import fork
from lakestate.cli.commands.fsck import fsck
from lakestate.cli.commands.jobs import epochs, jobs, show
from lakestate.cli.commands.plan import plan
from lakestate.cli.commands.profile import profile
from lakestate.cli.commands.rollback import rollback
from lakestate.cli.commands.state import export, sql, state
from lakestate.cli.commands.tags import tag, tags, untag
from lakestate.cli.commands.upkeep import compact, retain

LOOKING = [jobs, epochs, show, state, sql, diff, history, du, profile, plan, fsck, doctor]
CHANGING = [tags, tag, untag, export, compact, retain, rollback, fork]
COMMANDS = [*LOOKING, *CHANGING]
"""All commands: first those that only look, fsck --repair and doctor excepted."""
