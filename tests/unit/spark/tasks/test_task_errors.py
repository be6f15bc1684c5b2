"""What Spark says about a task that failed, as the error that it was."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError
from pyspark.errors.exceptions.base import PythonException

from lakestate.errors import LakestateError, OperatorError, StorageUnavailableError
from lakestate.spark.execution.epoch_runner import task_failure

TRACEBACK = """
  An exception was thrown from the Python worker: Traceback (most recent call last):
  File "runtime/steps.py", line 180, in batches_of_hook
    yield from batches_of(call())
{raised}
"""


@pytest.mark.parametrize(
    ("raised", "kind", "said"),
    [
        (
            "lakestate.errors.OperatorError: it raised ValueError: operator a; found b [operator_failed]",
            OperatorError,
            "it raised ValueError: operator a; found b",
        ),
        (
            "lakestate.errors.StorageUnavailableError: the disk is full: file:///data [storage_unavailable]",
            StorageUnavailableError,
            "the disk is full: file:///data",
        ),
    ],
)
def test_an_error_of_ours_is_the_same_kind_on_the_driver(
    raised: str, kind: type[LakestateError], said: str
) -> None:
    text = TRACEBACK.format(raised=raised)
    found = task_failure(PythonException(message=text))
    assert type(found) is kind
    assert str(found) == f"{said} [{kind.code}]"
    assert text.strip() in found.__notes__[0]


def test_what_the_jvm_raised_is_told_without_its_call_stack() -> None:
    text = "org.apache.spark.SparkException: cannot read in/2.parquet\n\tat a.B.c(B.scala:1)\n\t... 7 more"
    found = task_failure(Py4JError(text))
    assert type(found) is OperatorError
    assert found.found == "org.apache.spark.SparkException: cannot read in/2.parquet"


def test_a_very_long_reason_is_cut() -> None:
    found = task_failure(Py4JError("x" * 5000))
    assert found.found == "x" * 2000 + " …"
