"""How the module of an operator reaches the workers, as the page on operators says."""

from __future__ import annotations

import importlib
import uuid
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle
from tests.support.spark.pipelines import (
    events,
    read_stream,
    run_available,
    spark_totals,
    state_rows,
    write_input,
)

import lakestate as ls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = """
from tests.support.spark.totals import Totals as Base
import lakestate as ls

class Totals(Base):
    totals = ls.KeyedTable(key="user string", value="n bigint, spend double")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that only the driver can import."""
    name = f"shop_{uuid.uuid4().hex}"
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / f"{name}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    return importlib.import_module(name)


def draw(spark: SparkSession, folder: Path, operator: ls.Operator) -> tuple[ls.ParquetBackend, ls.Pipeline]:
    backend = ls.ParquetBackend(folder / "checkpoints", cache_dir=folder / "cache")
    pipeline = ls.Pipeline("totals", backend, parallelism=2)
    source = pipeline.source(read_stream(spark, folder / "in"))
    source.key_by("user").apply("totals", operator)
    return backend, pipeline


def check_runs(spark: SparkSession, folder: Path, operator: ls.Operator) -> None:
    backend, pipeline = draw(spark, folder, operator)
    run_available(pipeline)
    assert state_rows(backend, "totals", "totals", operator, "totals") == spark_totals(spark, folder / "in")


def test_a_module_that_only_the_driver_has_is_named_and_can_be_shipped(
    spark: SparkSession, tmp_path: Path, module: ModuleType
) -> None:
    write_input(tmp_path / "in", 0, events(0, 100))
    with pytest.raises(
        ls.InvalidInputError, match=rf"cannot load the code of the pipeline: module {module.__name__};"
    ):
        check_runs(spark, tmp_path, module.Totals())
    assert not (tmp_path / "checkpoints").exists(), "it was claimed, although it cannot run"
    [problem] = draw(spark, tmp_path, module.Totals())[1].dry_run().problems
    assert problem.object_name == f"module {module.__name__}"
    spark.sparkContext.addPyFile(str(module.__file__))
    check_runs(spark, tmp_path, module.Totals())


def test_a_module_can_be_shipped_by_value(spark: SparkSession, tmp_path: Path, module: ModuleType) -> None:
    write_input(tmp_path / "in", 0, events(0, 100))
    cloudpickle.register_pickle_by_value(module)
    try:
        check_runs(spark, tmp_path, module.Totals())
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_what_spark_reports_begins_with_the_reason(spark: SparkSession, tmp_path: Path) -> None:
    write_input(tmp_path / "in", 0, events(0, 100))
    pipeline = ls.Pipeline("broken", tmp_path / "checkpoints", parallelism=2)
    source = pipeline.source(read_stream(spark, tmp_path / "in"))
    # Not an error that PySpark knows: Py4J says only which of its calls failed.
    broken = source.transform(
        lambda df: df.selectExpr("*", "java_method('java.util.UUID', 'fromString', user)")
    )
    broken.sink("out", ls.ParquetSink(tmp_path / "out"))
    with pytest.raises(ls.OperatorError, match=r"^Spark could not run the epoch; found \w+: Invalid UUID"):
        run_available(pipeline)
