"""Pipelines on local Spark: state and output equal what Spark SQL says over the same input."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.pipelines import (
    events,
    read_stream,
    run_available,
    spark_totals,
    state_rows,
    write_input,
)
from tests.support.totals import Totals

import lakestate as ls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def backend(tmp_path: Path) -> ls.ParquetBackend:
    return ls.ParquetBackend(f"file://{tmp_path}/checkpoints", cache_dir=tmp_path / "cache")


def totals_pipeline(
    spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend, parallelism: int = 2
) -> ls.Pipeline:
    pipeline = ls.Pipeline("totals", backend, parallelism=parallelism)
    pipeline.source(read_stream(spark, tmp_path / "in")).key_by("user").apply("totals", Totals())
    return pipeline


class TestOneStage:
    def test_totals_equal_those_of_spark_sql_over_restarts_and_rescaling(
        self, spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend
    ) -> None:
        for number, parallelism in enumerate((4, 7, 2)):
            write_input(tmp_path / "in", number, events(number, 500))
            run_available(totals_pipeline(spark, tmp_path, backend, parallelism))
            found = state_rows(backend, "totals", "totals", Totals(), "totals")
            assert found == spark_totals(spark, tmp_path / "in")
        manifest = backend.load_checkpoint_metadata("totals")
        assert (manifest.epoch, manifest.generation) == (3, 3)
