"""A driver whose clock was years ahead, and the ones that follow it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.clocks import SetClock
from tests.support.spark.pipelines import events, read_stream, run_available, state_rows, write_input
from tests.support.spark.totals import Totals

import lakestate as ls
from lakestate.ambient import SystemAmbient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS = 86_400_000
JOB = "totals"


class DailyTotals(Totals):
    totals = ls.KeyedTable(key="user string", value="n bigint, spend double", ttl="1 day")


def pipeline(spark: SparkSession, folder: Path, now_ms: int | None = None) -> ls.Pipeline:
    ambient = SystemAmbient() if now_ms is None else SetClock(now_ms)
    backend = ls.ParquetBackend(f"file://{folder}/checkpoints", cache_dir=folder / "cache", ambient=ambient)
    made = ls.Pipeline(JOB, backend, parallelism=2)
    made.source(read_stream(spark, folder / "in")).key_by("user").apply("totals", DailyTotals())
    return made


def test_a_job_whose_time_is_ahead_is_refused_before_it_is_claimed_and_can_be_repaired(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_input(tmp_path / "in", 0, events(0, 50))
    run_available(pipeline(spark, tmp_path, SystemAmbient().now_ms() + 3653 * DAY_MS))
    fence = (tmp_path / "checkpoints" / JOB / "generation.json").read_bytes()
    with pytest.raises(ls.ClockError, match="the time of this job is ahead of the clock of this driver"):
        pipeline(spark, tmp_path).start()
    assert [str(each).split(":")[0] for each in pipeline(spark, tmp_path).dry_run().problems] == [
        "the time of this job is ahead of the clock of this driver"
    ]
    assert (tmp_path / "checkpoints" / JOB / "generation.json").read_bytes() == fence
    write_input(tmp_path / "in", 1, events(1, 50))
    query = run_available(pipeline(spark, tmp_path), reset_clock=True)
    assert query.lastProgress.clock_ahead_ms == 0
    backend = ls.ParquetBackend(f"file://{tmp_path}/checkpoints", cache_dir=tmp_path / "cache")
    found = state_rows(backend, JOB, "totals", DailyTotals(), "totals")
    assert sum(row["n"] for row in found) == 100
    # The time to live of all rows began with the reset, and so it ends.
    write_input(tmp_path / "in", 2, events(2, 1))
    run_available(pipeline(spark, tmp_path, SystemAmbient().now_ms() + 2 * DAY_MS))
    later = ls.ParquetBackend(
        f"file://{tmp_path}/checkpoints",
        cache_dir=tmp_path / "cache",
        ambient=SetClock(SystemAmbient().now_ms() + 2 * DAY_MS),
    )
    assert sum(row["n"] for row in state_rows(later, JOB, "totals", DailyTotals(), "totals")) == 1
