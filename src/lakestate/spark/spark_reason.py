"""The reason in what Spark reports: what went wrong, without the calls, wrappers and plans around it.

Spark's text begins with the call of Py4J or the id of a query, and ends with a plan or a call stack. The
error that carries it is still the cause of ours, so nothing is lost.
"""

from __future__ import annotations

import re
from textwrap import dedent

REASON_CHARS_MAX = 2000

_CALL_OF_PY4J = re.compile(r"An error occurred while calling \S+\s*(?:Trace)?:?\s*")
_QUERY = re.compile(r"\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")
_QUERY_STATE = re.compile(
    r"\s*(SQLSTATE: XXKST)?\s*=== Streaming Query ===.*|\s+SQLSTATE: XXKST\s*$", re.DOTALL
)
_ABORTED_JOB = re.compile(r"Job aborted due to stage failure: .*?\(\S+ executor [^)]*\): ")
_CLASS = re.compile(r"((?:[a-z_]\w*\.)+)([A-Z][\w$]*)(?:: |$)")
_CAUSE = re.compile(r"^Caused by: (.*)$", re.MULTILINE)
_OF_DAEMON = re.compile(r"Error from python worker:\n((?:  .*\n)+)")
"""What a Python process said that ended before it could work, indented."""
_TRACEBACK = "Traceback (most recent call last):"


def spark_reason(failure: BaseException) -> str:
    """What went wrong, on its own.

    >>> print(spark_reason(Exception(
    ...     "An error occurred while calling o62.collectToPython.\\n: org.apache.spark.SparkException: "
    ...     "cannot read x.parquet\\n\\tat a.B.c(B.scala:1)\\nCaused by: java.io.IOException: cut off")))
    cannot read x.parquet; caused by: IOException: cut off
    """
    text = str(failure).strip()
    if said := _OF_DAEMON.search(text):
        text = dedent(said[1]).strip()
    reason = _python_reason(text) if _TRACEBACK in text else _jvm_reason(text)
    return reason if len(reason) <= REASON_CHARS_MAX else f"{reason[:REASON_CHARS_MAX]} …"


def _python_reason(text: str) -> str:
    """The last error of a traceback: the lines after its last call."""
    lines = text.rpartition(_TRACEBACK)[2].splitlines()
    calls = [number for number, line in enumerate(lines) if line.startswith("  ")]
    return "\n".join(lines[max(calls, default=-1) + 1 :]).strip() or text


def _jvm_reason(text: str) -> str:
    """The first line without what is wrapped around it, and the innermost cause if it adds something."""
    unwrapped = _QUERY_STATE.sub("", _QUERY.sub("", _CALL_OF_PY4J.sub("", text)))
    lines = [line for line in unwrapped.splitlines() if line and not line.startswith(("\tat ", "\t... "))]
    head = _without_class(_ABORTED_JOB.sub("", _without_class(lines[0]))) if lines else text
    causes = [_without_class(cause) for cause in _CAUSE.findall(unwrapped)]
    cause = causes[-1] if causes else ""
    if not head or not cause or cause in head:
        return head or cause or text
    return f"{head}; caused by: {cause}"


def _without_class(line: str) -> str:
    """The message of an error of Spark; of any other error its short name too. Empty if it has none."""
    line = line.strip().removesuffix(";")
    found = _CLASS.match(line)
    if found is None:
        return line
    message = line[found.end() :]
    is_sparks = found[1].startswith(("org.apache.spark.", "py4j."))
    return message if is_sparks or not message else f"{found[2]}: {message}"
