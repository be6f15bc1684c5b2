"""What an engine does to attempts, and a store that is far away."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.spark.pipelines import (
    events,
    read_stream,
    run_available,
    spark_totals,
    state_rows,
    write_input,
)
from tests.support.spark.totals import Totals

import lakestate as ls
from lakestate.sinks.formats.parquet.sink import ParquetSink
from lakestate.spark.execution import epoch_runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakestate.config import StoreConfig


@pytest.fixture
def backend(tmp_path: Path) -> ls.ParquetBackend:
    return ls.ParquetBackend(f"file://{tmp_path}/checkpoints", cache_dir=tmp_path / "cache")


class Latest(ls.Operator):
    """The last totals of every user, one more time."""

    latest = ls.KeyedTable(key="user string", value="n bigint, spend double")

    def process_batch(self, batch, ctx):
        ctx.latest.put(batch)


def two_stages(spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend) -> ls.Pipeline:
    pipeline = ls.Pipeline("stages", backend, parallelism=2)
    totals = pipeline.source(read_stream(spark, tmp_path / "in")).key_by("user").apply("totals", Totals())
    totals.key_by("user").apply("latest", Latest())
    return pipeline


def test_an_epoch_that_mixes_two_attempts_is_thrown_away_and_run_again(
    spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kept rows of the first stage are lost once they were computed: Spark computes them again."""
    lost: list[str] = []
    collect_reports = epoch_runner.collect_reports

    def losing(frame: Any) -> list[bytes]:
        found = collect_reports(frame)
        if len(frame.columns) > 1 and not lost:
            lost.append("the first stage")
            frame.unpersist(blocking=True)
        return found

    monkeypatch.setattr(epoch_runner, "collect_reports", losing)
    for number in range(2):
        write_input(tmp_path / "in", number, events(number, 200))
    plans: list[int] = []
    run = epoch_runner.EpochRunner.run

    def counted(self: Any, plan: Any, batch: Any) -> Any:
        plans.append(int(plan.epoch))
        return run(self, plan, batch)

    monkeypatch.setattr(epoch_runner.EpochRunner, "run", counted)
    run_available(two_stages(spark, tmp_path, backend))
    assert plans == [1, 1, 2]
    expected = spark_totals(spark, tmp_path / "in")
    assert state_rows(backend, "stages", "totals", Totals(), "totals") == expected
    assert state_rows(backend, "stages", "latest", Latest(), "latest") == expected


@pytest.mark.parametrize("seed", [1, 2])
def test_a_job_on_s3_needs_nothing_but_its_store(
    spark: SparkSession, tmp_path: Path, s3_config: StoreConfig, seed: int
) -> None:
    for number in range(2):
        write_input(tmp_path / "in", number, events(seed * 10 + number, 300))
        # Another host each time: neither the run cache nor Spark's directory is there.
        backend = ls.ParquetBackend(s3_config, cache_dir=tmp_path / f"cache-{number}")
        pipeline = ls.Pipeline("totals", backend, parallelism=3 - number)
        totals = pipeline.source(read_stream(spark, tmp_path / "in")).key_by("user").apply("totals", Totals())
        totals.sink("out", ParquetSink(f"file://{tmp_path}/out"))
        run_available(pipeline, finish_files=number == 1)
        found = state_rows(backend, "totals", "totals", Totals(), "totals")
        assert found == spark_totals(spark, tmp_path / "in")
