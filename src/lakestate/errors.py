"""All errors of Lakestate, grouped by what the caller should do.

Every error has a stable `code`, names the object it is about, and says what was found, what was
expected and what to do next. All errors pickle, because Spark ships them between processes.
Standard library only: every layer imports this module.
"""

from __future__ import annotations

from typing import ClassVar

RESTORE_OR_GO_BACK = (
    "restore the object, or continue from an epoch that does not need it with start(from_epoch=…): "
    "ls.verify says which epochs can be restored"
)
"""What to do about a damaged object of an epoch."""

FILE_OR_GO_BACK = (
    "restore the file, or continue from an epoch before it was begun with start(from_epoch=…): its rows are "
    "then written again; the epoch in which a file was begun is in its name"
)
"""What to do about a damaged file that is not finished."""


class LakestateError(Exception):
    """Base of all errors that Lakestate raises on purpose.

    >>> error = NotFoundError("no such epoch", object_name="epochs/0000000007.json",
    ...                       found="epochs 1 to 5", action="open one of those")
    >>> print(error)
    no such epoch: epochs/0000000007.json; found epochs 1 to 5; open one of those [not_found]
    """

    code: ClassVar[str] = "error"

    def __init__(
        self,
        summary: str,
        *,
        object_name: str | None = None,
        found: object = None,
        expected: object = None,
        action: str | None = None,
    ) -> None:
        # Only the summary goes through `args`: unpickling calls the class with it and then
        # restores the rest from `__dict__`.
        super().__init__(summary)
        self.summary = summary
        self.object_name = object_name
        self.found = None if found is None else str(found)
        self.expected = None if expected is None else str(expected)
        self.action = action

    def __str__(self) -> str:
        head = self.summary if self.object_name is None else f"{self.summary}: {self.object_name}"
        details = [
            f"found {self.found}" if self.found is not None else None,
            f"expected {self.expected}" if self.expected is not None else None,
            self.action,
        ]
        return "; ".join([head, *(part for part in details if part)]) + f" [{self.code}]"


class ConflictError(LakestateError):
    """Another writer changed the object first. Read it again and retry."""

    code = "conflict"


class FencedError(LakestateError):
    """A higher generation has taken over the job. Stop: this driver may write nothing more."""

    code = "fenced"


class NotFoundError(LakestateError):
    """The named object does not exist."""

    code = "not_found"


class InvalidInputError(LakestateError, ValueError):
    """An argument or setting can never work. Correct it."""

    code = "invalid_input"


class CorruptionError(LakestateError):
    """A stored object differs from what was written. It is never used."""

    code = "corruption"


class MisplacedObjectError(CorruptionError):
    """A stored object is intact and belongs elsewhere: to another job, another epoch or another name."""


class IncompatibleStateError(LakestateError):
    """Stored state and the declared tables do not match. Migrate, or start another job."""

    code = "incompatible_state"


class StorageUnavailableError(LakestateError):
    """The store did not answer in time. Try later.

    A conditional write has changed nothing. An idempotent write may have, and can be repeated.
    """

    code = "storage_unavailable"


class VisibleOutputError(LakestateError):
    """Going back would write output again that readers already see. Look at `output`, then decide."""

    code = "visible_output"

    output: object = None
    """What is visible: a `lakestate.repair.LaterOutput`."""


class OutcomeUnknownError(LakestateError):
    """A write was sent and its answer was lost. It may or may not have happened: check before acting."""

    code = "outcome_unknown"


class OperatorError(LakestateError):
    """The code of an operator or sink raised, or yielded rows it may not. The epoch is not published.

    Only `on_commit` is called after publication: if it raises, the next start calls it again. The
    original exception is the cause, with its own traceback.
    """

    code = "operator_failed"


class ClockError(LakestateError):
    """The clock of this host and the time of a job disagree. Correct the clock, or reset the job's time."""

    code = "clock"


class StopTimeoutError(LakestateError, TimeoutError):
    """A pipeline did not stop in the time it was given. Start it again: nothing is lost."""

    code = "stop_timeout"


class MissingExtraError(LakestateError, ImportError):
    """An optional dependency is not installed."""

    code = "missing_extra"
