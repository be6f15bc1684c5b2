"""Running aggregates on Spark: expressions, kinds of rows, and exact results against Spark SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.spark.pipelines import (
    EVENTS_DDL,
    events,
    read_output,
    read_stream,
    run_available,
    write_input,
)

import lakestate as ls
from lakestate.errors import InvalidInputError
from lakestate.row_kind import RowKind


def pipeline_over(spark: Any, folder: Path) -> tuple[ls.Pipeline, Any]:
    pipeline = ls.Pipeline("job", folder / "checkpoints", parallelism=2, cache_dir=folder / "cache")
    return pipeline, pipeline.source(read_stream(spark, folder / "in"), event_time="ts")


def newest_rows(folder: Path, key: str) -> list[dict[str, Any]]:
    newest: dict[Any, dict[str, Any]] = {}
    for row in sorted(read_output(folder), key=lambda row: row["n"]):
        newest[row[key]] = row
    return sorted(newest.values(), key=str)


def test_updates_end_at_what_spark_sql_says_of_all_rows(spark: Any, tmp_path: Path) -> None:
    for number in range(3):
        write_input(tmp_path / "in", number, events(number, 400))
    pipeline, source = pipeline_over(spark, tmp_path)
    totals = source.key_by("upper(user) AS who").aggregate(
        "totals",
        n=ls.count(),
        large=ls.count(where="amount > 50"),
        euros=ls.sum("amount * 4"),
        average=ls.mean("amount"),
        latest=ls.max("ts"),
    )
    assert (totals.kind.kind, totals.kind.key) == (RowKind.UPSERT, ("who",))
    totals.as_log().sink("out", ls.ParquetSink(tmp_path / "out"))
    query = run_available(pipeline, finish_files=True)
    assert [progress.rows_total for progress in query.recentProgress][:3] == [400, 400, 400]
    spark.read.schema(EVENTS_DDL).parquet(str(tmp_path / "in")).createOrReplaceTempView("rows")
    expected = spark.sql(
        "SELECT upper(user) AS who, count(1) AS n, count_if(amount > 50) AS large, sum(amount * 4) AS euros, "
        "avg(amount) AS average, max(ts) AS latest FROM rows GROUP BY ALL"
    ).toArrow()
    assert newest_rows(tmp_path / "out", "who") == sorted(expected.to_pylist(), key=str)


def test_what_does_not_fit_is_refused_when_the_pipeline_is_built(spark: Any, tmp_path: Path) -> None:
    write_input(tmp_path / "in", 0, events(0, 1))
    _, source = pipeline_over(spark, tmp_path)
    keyed = source.key_by("user")
    for build, message in {
        lambda: keyed.aggregate("a", n=ls.sum("amonut")): "names a column that the rows do not have: amonut",
        lambda: keyed.aggregate("a", n=ls.sum("amount +")): "an expression of aggregate a does not fit",
        lambda: keyed.aggregate("a", n=ls.sum("user")): "found string; expected a number",
        lambda: keyed.aggregate("a", user=ls.count()): "an aggregate has the name of a key column",
        lambda: keyed.aggregate("a"): "an aggregate needs something to compute",
        lambda: keyed.aggregate("a", emit="final", n=ls.count()): "a running aggregate is never final",
        lambda: keyed.aggregate("a", emit="all", n=ls.count()): "unknown emission",
        lambda: keyed.aggregate("a", n=ls.count()).sink("out", ls.ParquetSink(tmp_path / "out")): (
            r"sink out cannot take rows that change; found updates by user; .* call as_log\(\) first"
        ),
        lambda: keyed.aggregate("a", n=ls.count()).transform(lambda rows: rows): "a transform cannot take",
        lambda: keyed.aggregate("a", n=ls.count()).select("n"): "select leaves out columns",
    }.items():
        with pytest.raises(InvalidInputError, match=message):
            build()


def test_select_and_where_take_expressions(spark: Any, tmp_path: Path) -> None:
    write_input(tmp_path / "in", 0, events(0, 50).slice(0, 50))
    pipeline, source = pipeline_over(spark, tmp_path)
    source.where("amount > 20").select("user", "amount * 2 AS twice").sink(
        "out", ls.ParquetSink(tmp_path / "out")
    )
    run_available(pipeline, finish_files=True)
    rows = [row for row in events(0, 50).to_pylist() if row["amount"] > 20]
    expected = [{"user": row["user"], "twice": row["amount"] * 2} for row in rows]
    assert sorted(read_output(tmp_path / "out"), key=str) == sorted(expected, key=str)
