"""How an error that a task raises reaches the driver as the same error.

Spark hands the driver only the text of a traceback. So the task attaches a record to the error before
Spark formats it, and the driver decodes that record. The message itself is never interpreted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from pyspark.errors.exceptions.base import PythonException

from lakestate import errors
from lakestate.errors import LakestateError, OperatorError

_MARK = "lakestate-error: "

_KINDS: dict[str, type[LakestateError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, LakestateError)
}


class ErrorRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The code and the fields of an error."""

    code: str
    summary: str
    object_name: str | None = None
    found: str | None = None
    expected: str | None = None
    action: str | None = None


@contextmanager
def record_errors() -> Iterator[None]:
    """Attach a record to an error of ours that leaves the block, for `error_from_spark` to find.

    >>> try:
    ...     with record_errors():
    ...         raise errors.CorruptionError("not what was written", object_name="a.parquet")
    ... except errors.CorruptionError as error:
    ...     print(*error.__notes__)
    lakestate-error: {"code":"corruption","summary":"not what was written","object_name":"a.parquet"}
    """
    try:
        yield
    except LakestateError as error:
        record = ErrorRecord(
            error.code, error.summary, error.object_name, error.found, error.expected, error.action
        )
        error.add_note(_MARK + msgspec.json.encode(record).decode())
        raise


def error_from_spark(failure: Exception) -> LakestateError:
    """The error that failed a Spark job: the one that a task recorded, or `OperatorError` with Spark's text.

    Spark's own code, such as a source that cannot read a file, records nothing.
    """
    text = str(failure)
    record = _last_record(text) if isinstance(failure, PythonException) else None
    if record is None:
        return OperatorError("Spark could not run the epoch", found=_without_call_stack(text))
    error = _KINDS.get(record.code, OperatorError)(
        record.summary,
        object_name=record.object_name,
        found=record.found,
        expected=record.expected,
        action=record.action,
    )
    error.add_note(text)
    return error


def _last_record(text: str) -> ErrorRecord | None:
    """The record that was attached last. Python prints the note of an error after those of its causes."""
    for line in reversed(text.splitlines()):
        if line.startswith(_MARK):
            try:
                return msgspec.json.decode(line.removeprefix(_MARK), type=ErrorRecord)
            except msgspec.MsgspecError:
                return None
    return None


def _without_call_stack(text: str, length_max: int = 2000) -> str:
    """What Spark reports, without the lines of the JVM's call stack."""
    lines = [line for line in text.splitlines() if not line.startswith(("\tat ", "\t... "))]
    shown = "\n".join(lines)
    return shown if len(shown) <= length_max else f"{shown[:length_max]} …"
