"""What a failure looks like: one line, a hint, and an exit code that scripts can rely on."""

from __future__ import annotations

from enum import IntEnum

from lakestate.cli.cells import printable
from lakestate.cli.main import MISSING_EXTRA
from lakestate.errors import (
    RESTORE_OR_GO_BACK,
    CorruptionError,
    InvalidInputError,
    LakestateError,
    MissingExtraError,
    NotFoundError,
    OutcomeUnknownError,
    StorageUnavailableError,
)


class ExitCode(IntEnum):
    """How a command ended."""

    DONE = 0
    FOUND = 1
    """It ran, and what it looked for is there: damage, a problem, a check that failed."""
    USAGE = 2
    NOT_FOUND = 3
    DAMAGED = 4
    REFUSED = 5
    UNAVAILABLE = 6
    MISSING_EXTRA = MISSING_EXTRA
    BUG = 70
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.FOUND: "it ran, and found what it looks for: damage, a problem, a check that failed",
    ExitCode.USAGE: "an argument, an option or the config file is wrong",
    ExitCode.NOT_FOUND: "there is no such job, epoch, operator, table, tag or place",
    ExitCode.DAMAGED: "an object that is needed is damaged or missing; what can be read was shown",
    ExitCode.REFUSED: "it cannot be done as things are; nothing was changed",
    ExitCode.UNAVAILABLE: "the store did not answer, or its answer was lost: look, then try again",
    ExitCode.MISSING_EXTRA: "a library is not installed; the hint names the extra",
    ExitCode.BUG: "an error that nobody expected; `--debug` shows where",
    ExitCode.INTERRUPTED: "interrupted",
}

_IN_COMMANDS = {
    RESTORE_OR_GO_BACK: "restore the object, or go back to an epoch that does not need it: "
    "lakestate fsck says which",
    "ls.verify says which are whole": "lakestate fsck says which are whole",
    "delete the tag with ParquetBackend.delete_tag": "delete the tag with lakestate untag",
}

_BY_ERROR: tuple[tuple[type[LakestateError], ExitCode], ...] = (
    (MissingExtraError, ExitCode.MISSING_EXTRA),
    (InvalidInputError, ExitCode.USAGE),
    (NotFoundError, ExitCode.NOT_FOUND),
    (CorruptionError, ExitCode.DAMAGED),
    (StorageUnavailableError, ExitCode.UNAVAILABLE),
    (OutcomeUnknownError, ExitCode.UNAVAILABLE),
)


def exit_code_of(error: LakestateError) -> ExitCode:
    """The exit code of an error: what a script would do about it.

    >>> exit_code_of(NotFoundError("no such job")).name
    'NOT_FOUND'
    """
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), ExitCode.REFUSED)


def error_lines(error: LakestateError) -> list[str]:
    """An error as people read it: what is wrong in one line, and what to do in the next.

    >>> error_lines(NotFoundError("no such job", object_name="totls", found="totals", action="look again"))
    ['error: no such job: totls; found totals', 'hint: look again']
    """
    parts = [error.summary if error.object_name is None else f"{error.summary}: {error.object_name}"]
    if error.found is not None:
        parts.append(f"found {error.found}")
    if error.expected is not None:
        parts.append(f"expected {error.expected}")
    lines = [f"error: {_one_line('; '.join(parts))}"]
    return [*lines, f"hint: {_one_line(error.action)}"] if error.action else lines


def for_command_line(text: str) -> str:
    """Text of an error with the commands that do what it says to do in Python.

    >>> for_command_line(RESTORE_OR_GO_BACK)
    'restore the object, or go back to an epoch that does not need it: lakestate fsck says which'
    """
    for said, command in _IN_COMMANDS.items():
        text = text.replace(said, command)
    return text


def _one_line(text: str) -> str:
    return printable(" ".join(for_command_line(text).split()))
