"""Rows reach the partition of their subtask, with `repartitionById` and without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812
from tests.support.spark.pipelines import events, read_output, read_stream, run_available, write_input

import lakestate as ls
from lakestate.protocol.key_ranges import subtask_sql
from lakestate.spark.execution import combining
from lakestate.spark.versions import placement

ROUTED = ["by hash", *(["by id"] if hasattr(placement.DataFrame, "repartitionById") else [])]


@pytest.fixture(params=ROUTED)
def routed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way that this version of Spark has."""
    monkeypatch.setattr(placement, "_has_repartition_by_id", lambda: request.param == "by id")


@pytest.mark.usefixtures("routed")
@pytest.mark.parametrize("parallelism", [1, 7, 200])
def test_every_row_is_in_the_partition_of_its_subtask(spark: Any, parallelism: int) -> None:
    rows = spark.range(2000).selectExpr("id", "cast(id as string) as user")
    place = F.expr(placement.subtask_place_sql(["user"], parallelism))
    subtask = subtask_sql("xxhash64(user)", parallelism)
    placed = placement.repartition_by_place(rows, parallelism, place).selectExpr(
        f"spark_partition_id() = {subtask} as is_right"
    )
    assert placed.rdd.getNumPartitions() == parallelism
    assert [tuple(row) for row in placed.groupBy("is_right").count().collect()] == [(True, 2000)]


@pytest.mark.usefixtures("routed")
def test_a_constant_key_is_in_the_partition_of_its_subtask_and_the_others_are_empty(spark: Any) -> None:
    rows = spark.range(100).selectExpr("id", "'all' as user")
    place = F.expr(placement.subtask_place_sql(["user"], 7))
    placed = placement.repartition_by_place(rows, 7, place)
    found = placed.selectExpr("spark_partition_id() as found", f"{subtask_sql('xxhash64(user)', 7)} as own")
    assert placed.rdd.getNumPartitions() == 7
    assert [row.found == row.own for row in found.collect()] == [True] * 100


@pytest.mark.usefixtures("routed")
@pytest.mark.parametrize("rows_min", [combining.ROWS_MIN, 1], ids=["routed first", "combined first"])
def test_grouped_rows_stay_with_their_subtask(
    spark: Any, tmp_path: Path, rows_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(combining, "ROWS_MIN", rows_min)
    monkeypatch.setattr(combining, "LEFT_MAX", 1)
    for number in range(2):
        write_input(tmp_path / "in", number, events(number, 300))
    pipeline = ls.Pipeline("job", tmp_path / "checkpoints", parallelism=3, cache_dir=tmp_path / "cache")
    source = pipeline.source(read_stream(spark, tmp_path / "in"))
    counts = source.key_by("user").aggregate("counts", n=ls.count())
    counts.as_log().sink("out", ls.ParquetSink(tmp_path / "out"))
    shuffles = "spark.sql.requireAllClusterKeysForDistribution"
    spark.conf.set(shuffles, "true")
    try:
        run_available(pipeline, finish_files=True)
    finally:
        spark.conf.unset(shuffles)
    newest = {
        row["user"]: row["n"] for row in sorted(read_output(tmp_path / "out"), key=lambda row: row["n"])
    }
    everything = spark.read.parquet(str(tmp_path / "in")).groupBy("user").count().collect()
    assert newest == {row["user"]: row["count"] for row in everything}
