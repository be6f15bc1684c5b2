"""How an error that a task raises reaches the driver as the same error.

Spark hands the driver only the text of a traceback. So the task attaches a record to the error before
Spark formats it, and the driver decodes that record. The message itself is never interpreted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pyspark
from pyspark.errors.exceptions.base import PythonException

from lakestate import errors
from lakestate.errors import InvalidInputError, LakestateError, OperatorError
from lakestate.spark.kafka_connector import ConnectorVersion, kafka_error
from lakestate.spark.spark_reason import spark_reason

_MARK = "lakestate-error: "
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_OTHER_MODULE = re.compile(r"Can't get attribute '.*' on <module '([^']+)'")
"""What Python says if a worker imports another version of a module, without the class."""
_INSTALLED = frozenset({"lakestate", "msgspec", "numpy", "obstore", "pandas", "pyarrow", "xxhash"})
"""Packages that are too large to be shipped with a job, or not made of Python alone."""
_LOST_ON = re.compile(r"Lost task .*?\((\S+) executor [^)]*\)")

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


def error_from_spark(
    failure: Exception, what: str = "run the epoch", *, kafka: str | None = None
) -> LakestateError:
    """The error that failed a Spark job: the one that a task recorded, or `OperatorError` with the reason.

    Spark's own code, such as a source that cannot read a file, records nothing. `kafka` names the sources of
    Kafka that it may have read.
    """
    text = str(failure)
    record = _last_record(text) if isinstance(failure, PythonException) else None
    if record is None:
        reason = spark_reason(failure)
        if _MISSING_MODULE.match(reason):
            lost = _LOST_ON.search(text)
            return loading_error(reason, "an executor" if lost is None else lost[1])
        of_kafka = kafka_error(text, reason, ConnectorVersion.of_spark(pyspark.__version__), kafka)
        return of_kafka or OperatorError(f"Spark could not {what}", found=reason)
    error = _KINDS.get(record.code, OperatorError)(
        record.summary,
        object_name=record.object_name,
        found=record.found,
        expected=record.expected,
        action=record.action,
    )
    error.add_note(text)
    return error


def loading_error(found: str, worker: str, module: str | None = None) -> InvalidInputError:
    """The error for code that a worker cannot load: it lacks a module, or has another version of it.

    >>> print(loading_error("ModuleNotFoundError: No module named 'shop'", "10.0.0.3").object_name)
    module shop
    """
    named = _MISSING_MODULE.match(found) or _OTHER_MODULE.search(found)
    module = module if named is None else named[1]
    if module is None:
        return InvalidInputError(
            "Python workers cannot load the code of the pipeline",
            found=f"{found}, on {worker}",
            action="give the workers the same versions of Python and of all packages as the driver",
        )
    package = module.partition(".")[0]
    ways = (
        "install it there, with the same version as on the driver (PYSPARK_PYTHON says which Python that is)"
        if package in _INSTALLED
        else "pass it with spark-submit --py-files or spark.sparkContext.addPyFile(…), install it there, "
        f"or ship it by value with pyspark.cloudpickle.register_pickle_by_value({package})"
    )
    return InvalidInputError(
        "Python workers cannot load the code of the pipeline",
        object_name=f"module {module}",
        found=f"{found}, on {worker}",
        expected="a module that workers can import, as the driver can",
        action=ways,
    )


def _last_record(text: str) -> ErrorRecord | None:
    """The record that was attached last. Python prints the note of an error after those of its causes."""
    for line in reversed(text.splitlines()):
        if line.startswith(_MARK):
            try:
                return msgspec.json.decode(line.removeprefix(_MARK), type=ErrorRecord)
            except msgspec.MsgspecError:
                return None
    return None
