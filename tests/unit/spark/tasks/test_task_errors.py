"""What Spark reports about a task that failed, as the error that the task raised."""

from __future__ import annotations

import sys
import traceback
from types import ModuleType

import pytest
from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors.exceptions.base import PythonException

from lakestate.errors import InvalidInputError, LakestateError, OperatorError, StorageUnavailableError
from lakestate.spark.tasks.stage_task import StageCode
from lakestate.spark.tasks.task_errors import error_from_spark, record_errors


def text_of_task(raised: BaseException) -> str:
    """What Spark makes of an error that leaves a task."""
    try:
        with record_errors():
            raise raised
    except BaseException:
        return f"\n  An exception was thrown from the Python worker: {traceback.format_exc()}\n"


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (
            OperatorError("it raised ValueError", object_name="operator a", found="b"),
            "it raised ValueError: operator a; found b",
        ),
        (
            StorageUnavailableError("the disk is full", object_name="file:///data"),
            "the disk is full: file:///data",
        ),
    ],
)
def test_an_error_of_ours_is_the_same_kind_on_the_driver(raised: LakestateError, said: str) -> None:
    text = text_of_task(raised)
    found = error_from_spark(PythonException(message=text))
    assert type(found) is type(raised)
    assert str(found) == f"{said} [{raised.code}]"
    assert text.strip() in found.__notes__[0]


def test_every_field_arrives_and_lines_stay_lines() -> None:
    raised = LakestateError("one\ntwo", object_name="é", found="[x]; y", expected='"z"', action="act")
    found = error_from_spark(PythonException(message=text_of_task(raised)))
    assert type(found) is LakestateError
    assert str(found) == str(raised)


def test_an_error_that_only_quotes_ours_is_not_taken_for_it() -> None:
    text = text_of_task(ValueError("\nlakestate.errors.CorruptionError: quoted [corruption]"))
    found = error_from_spark(PythonException(message=text))
    assert type(found) is OperatorError
    assert found.summary == "Spark could not run the epoch"


def test_a_record_that_cannot_be_decoded_is_spark_text() -> None:
    found = error_from_spark(PythonException(message="Traceback\nlakestate-error: {\n"))
    assert found.found == "Traceback"


def test_what_the_jvm_raised_is_reported_without_its_call_stack() -> None:
    text = "org.apache.spark.SparkException: cannot read in/2.parquet\n\tat a.B.c(B.scala:1)\n\t... 7 more"
    found = error_from_spark(Py4JError(text))
    assert type(found) is OperatorError
    assert found.found == "cannot read in/2.parquet"


def test_a_very_long_reason_is_cut() -> None:
    found = error_from_spark(Py4JError("x" * 5000))
    assert found.found == "x" * 2000 + " …"


def text_of_worker(module: str) -> str:
    """What Spark reports if a worker cannot unpickle a task."""
    return (
        "Job aborted due to stage failure: Task 0 in stage 7.0 failed 4 times, most recent failure: "
        "Lost task 0.3 in stage 7.0 (TID 9) (10.0.0.3 executor 1): "
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "worker.py", line 75, in read_command\n    command = serializer.loads(file)\n'
        f"ModuleNotFoundError: No module named {module!r}\n"
    )


@pytest.mark.parametrize(
    ("module", "action"),
    [
        ("shop.operators", "spark-submit --py-files"),
        ("lakestate", "PYSPARK_PYTHON"),
        ("pyarrow", "PYSPARK_PYTHON"),
    ],
)
def test_a_module_that_workers_lack_is_named_with_ways_to_ship_it(module: str, action: str) -> None:
    found = error_from_spark(PythonException(message=text_of_worker(module)))
    assert type(found) is InvalidInputError
    assert found.object_name == f"module {module}"
    assert found.found == f"ModuleNotFoundError: No module named {module!r}, on 10.0.0.3"
    assert action in (found.action or "")


def test_code_that_a_worker_cannot_load_names_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("shop_operators")
    exec("class Totals:\n    pass", module.__dict__)
    monkeypatch.setitem(sys.modules, "shop_operators", module)
    pickled = cloudpickle.dumps((module.Totals(), None))
    code = StageCode(pickled, "digest of this test")
    monkeypatch.setitem(sys.modules, "shop_operators", ModuleType("shop_operators"))
    with pytest.raises(InvalidInputError, match=r"module shop_operators; .*Totals.*register_pickle_by_value"):
        code.load()
    monkeypatch.delitem(sys.modules, "shop_operators")
    with pytest.raises(
        InvalidInputError, match=r"module shop_operators; found ModuleNotFoundError: No module named"
    ):
        code.load()
