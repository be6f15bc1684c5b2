"""The command line: its options, its commands, and how a failure is told."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence

import click

import lakestate
from lakestate.cli import config
from lakestate.cli.commands.registry import COMMANDS
from lakestate.cli.failures import MEANINGS, ExitCode, error_lines, exit_code_of
from lakestate.cli.options import AtPlace, set_at, set_form
from lakestate.cli.output import Form
from lakestate.cli.session import ReaderGoneError, Session
from lakestate.errors import LakestateError

_CODES = "\n".join(f"  {code.value:>3}  {text}" for code, text in MEANINGS.items())

EPILOG = f"""\b
Exit codes:
{_CODES}

\b
Environment:
  {config.AT:<19} like --at
  {config.OUTPUT:<19} like --output
  {config.CONFIG:<19} the config file, instead of {config.DEFAULT_FILE}
  {config.PIPELINE:<19} module:pipeline, for the commands that need the code of a job
  NO_COLOR            no colour, even on a terminal

For completion in your shell, also of jobs, operators, tables, tags and epochs:
eval "$(_LAKESTATE_COMPLETE=bash_source lakestate)", or zsh_source, or fish_source.
"""


class _InOrder(click.Group):
    """Help lists the commands in the order in which people need them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [command.name or "" for command in COMMANDS]


@click.group(
    cls=_InOrder, commands=COMMANDS, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(lakestate.__version__, message="lakestate %(version)s")
@click.option(
    "--at",
    type=AtPlace(),
    envvar=config.AT,
    expose_value=False,
    callback=set_at,
    help="Where the checkpoints are: a URL, a path, or the name of a place in the config file.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice([form.value for form in Form]),
    envvar=config.OUTPUT,
    expose_value=False,
    callback=set_form,
    help="How results are printed.",
)
@click.option("--debug", is_flag=True, expose_value=False, help="Show where an error comes from.")
def app() -> None:
    """Look into the state of streaming jobs, and take care of it.

    A job is named by its id, an epoch by its number, a tag, a time (2026-01-31T12:00, in UTC) or the word
    newest. Nothing is changed by a command that only looks, and a running job is not disturbed.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command, tell a failure in one line and a hint, and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # What the libraries warn of is for the log of a driver; here the result says it.
    logging.getLogger("lakestate").addHandler(logging.NullHandler())
    session = Session()
    is_debugging = "--debug" in given
    try:
        app.main(_debug_first(given), prog_name="lakestate", standalone_mode=False, obj=session)
        return session.exit_code
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as wrong:
        where = getattr(wrong, "ctx", None)
        path = "lakestate" if where is None else where.command_path
        return _tell([f"error: {wrong.format_message()}", f"hint: {path} --help"], ExitCode.USAGE, False)
    except (click.Abort, KeyboardInterrupt):
        sys.stderr.write("interrupted\n")
        return ExitCode.INTERRUPTED
    except ReaderGoneError:
        # Not a failure; Python must not complain at its end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except LakestateError as error:
        return _tell(error_lines(error), exit_code_of(error), is_debugging)
    except Exception as error:  # noqa: BLE001 - whatever it is, nobody on call wants to read a traceback
        lines = [f"error: {type(error).__name__}: {' '.join(str(error).split())}"]
        return _tell([*lines, "hint: run it again with --debug to see where"], ExitCode.BUG, is_debugging)


def _debug_first(arguments: list[str]) -> list[str]:
    """`--debug` counts wherever it stands."""
    return (
        ["--debug", *(each for each in arguments if each != "--debug")]
        if "--debug" in arguments
        else arguments
    )


def _tell(lines: Sequence[str], code: ExitCode, is_debugging: bool) -> int:
    if is_debugging:
        traceback.print_exc()
    sys.stderr.write("\n".join(lines) + "\n")
    return code
