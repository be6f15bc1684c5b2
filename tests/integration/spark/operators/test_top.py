"""Top-N on Spark: orders by expressions, against Spark SQL over all rows."""

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
from lakestate.operators.windows import Session
from lakestate.row_kind import RowKind


def keyed_source(spark: Any, folder: Path) -> tuple[ls.Pipeline, Any]:
    pipeline = ls.Pipeline("job", folder / "checkpoints", parallelism=2, cache_dir=folder / "cache")
    source = pipeline.source(read_stream(spark, folder / "in"), event_time="ts")
    return pipeline, source.key_by("user")


def test_updates_end_at_what_spark_sql_says_of_all_rows(spark: Any, tmp_path: Path) -> None:
    for number in range(3):
        write_input(tmp_path / "in", number, events(number, 300, users=20))
    pipeline, keyed = keyed_source(spark, tmp_path)
    best = keyed.top("best", n=4, by="floor(amount / 20) desc, ts")
    assert (best.kind.kind, best.kind.key) == (RowKind.UPSERT, ("user", "rank"))
    best.as_log().sink("out", ls.ParquetSink(tmp_path / "out", roll=ls.Roll(interval="1 second")))
    run_available(pipeline, finish_files=True)
    spark.read.schema(EVENTS_DDL).parquet(str(tmp_path / "in")).createOrReplaceTempView("rows")
    order = "PARTITION BY user ORDER BY floor(amount / 20) DESC, ts, user, amount"
    expected = spark.sql(
        f"SELECT *, row_number() OVER ({order}) AS rank FROM rows QUALIFY rank <= 4"
    ).toArrow()
    assert best_rows(read_output(tmp_path / "out")) == sorted(expected.to_pylist(), key=str)


def best_rows(log: Any) -> list[dict[str, Any]]:
    """The last row at each rank: a row is replaced by a better one only."""
    found: dict[Any, dict[str, Any]] = {}
    for row in log:
        before = found.get((row["user"], row["rank"]))
        if before is None or goodness(row) > goodness(before):
            found[row["user"], row["rank"]] = row
    return sorted(found.values(), key=str)


def goodness(row: dict[str, Any]) -> tuple[float, float]:
    return row["amount"] // 20, -row["ts"].timestamp()


def test_what_does_not_fit_is_refused_when_the_pipeline_is_built(spark: Any, tmp_path: Path) -> None:
    write_input(tmp_path / "in", 0, events(0, 1))
    _, keyed = keyed_source(spark, tmp_path)
    ranked = keyed.top("t", n=1, by="ts").as_log().key_by("user")
    for build, message in {
        lambda: keyed.top("t", n=0, by="ts"): "not a number of rows: top t; found 0; expected 1 or more",
        lambda: keyed.top("t", n=1, by=""): "not an order of rows",
        lambda: keyed.top("t", n=1, by="ts,"): "not an order of rows",
        lambda: keyed.top("t", n=1, by="amonut desc"): "names a column that the rows do not have: amonut",
        lambda: keyed.top("t", n=1, by="array(ts)"): "rows cannot be ordered by this",
        lambda: keyed.top("t", n=1, by="ts", ties="some"): "unknown rule for ties",
        lambda: keyed.top("t", n=1, by="ts", emit="final"): "the best rows of a key are never final",
        lambda: keyed.top("t", n=1, by="ts", ties="all", emit="updates"): "may leave without another",
        lambda: ranked.top("t", n=1, by="ts"): "a column with the name of one that is added: rank",
        lambda: keyed.aggregate("a", n=ls.count()).key_by("user").top("t", n=1, by="n"): (
            "top t cannot take rows that change"
        ),
    }.items():
        with pytest.raises(InvalidInputError, match=message):
            build()


def test_the_only_row_of_a_key_is_replaced_without_its_rank(spark: Any, tmp_path: Path) -> None:
    write_input(tmp_path / "in", 0, events(0, 1))
    _, keyed = keyed_source(spark, tmp_path)
    assert keyed.top("one", n=1, by="ts").select("user", "ts").kind.key == ("user",)


def test_the_best_rows_of_each_window_come_out_with_a_key_and_without(spark: Any, tmp_path: Path) -> None:
    for number in range(3):
        write_input(tmp_path / "in", number, events(number, 300, users=5))
    pipeline, keyed = keyed_source(spark, tmp_path)
    by = "floor(amount / 20) desc"
    of_users = keyed.window(ls.Tumbling("40 seconds")).top("users", n=2, by=by)
    of_all = (
        keyed.as_log().window(ls.Hopping("40 seconds", every="15 seconds")).top("all", n=2, by=by, ties="all")
    )
    assert (of_users.kind.kind, of_all.kind.kind) == (RowKind.APPEND, RowKind.APPEND)
    of_users.sink("users_out", ls.ParquetSink(tmp_path / "users"))
    of_all.sink("all_out", ls.ParquetSink(tmp_path / "all"))
    run_available(pipeline, drain=True)
    spark.read.schema(EVENTS_DDL).parquet(str(tmp_path / "in")).createOrReplaceTempView("rows")
    for name, window, rank, key in (
        ("users", "ts, '40 seconds'", "row_number", "user, "),
        ("all", "ts, '40 seconds', '15 seconds'", "rank", ""),
    ):
        windows = spark.sql(f"SELECT user, amount, ts, window({window}) AS w FROM rows")
        times = ["w.start AS window_start", "w.end AS window_end"]
        windows.selectExpr("user", "amount", "ts", *times).createOrReplaceTempView("windowed")
        ties = ", user NULLS FIRST, amount, ts" if rank == "row_number" else ""
        order = f"PARTITION BY {key}window_start ORDER BY floor(amount / 20) DESC NULLS LAST{ties}"
        expected = spark.sql(f"SELECT *, {rank}() OVER ({order}) AS rank FROM windowed QUALIFY rank <= 2")
        found = [{key: row[key] for key in row if key != "place"} for row in read_output(tmp_path / name)]
        assert sorted(found, key=str) == sorted(expected.toArrow().to_pylist(), key=str)


def test_windows_that_do_not_fit_are_refused_when_the_pipeline_is_built(spark: Any, tmp_path: Path) -> None:
    write_input(tmp_path / "in", 0, events(0, 1))
    _, keyed = keyed_source(spark, tmp_path)
    minute = ls.Tumbling("1 minute")
    counted = keyed.window(minute).aggregate("a", n=ls.count())
    named = keyed.as_log().select("ts", "amount AS window_end")
    untimed = keyed.as_log().select("user", "amount")
    for build, message in {
        lambda: keyed.window(Session("1 minute")).top("t", n=1, by="ts"): "a top-N takes windows of one size",
        lambda: keyed.window(ls.Tumbling("1 minute", time="processing")).top(
            "t", n=1, by="ts"
        ): "in event time",
        lambda: keyed.window(minute).top("t", n=1, by="ts", emit="updates"): "yielded once, when it closes",
        lambda: keyed.window(minute).top("t", n=0, by="ts"): "not a number of rows",
        lambda: keyed.window(minute).top("t", n=1, by="amonut"): "names a column that the rows do not have",
        lambda: untimed.window(minute).top("t", n=1, by="amount"): "a window of top t needs event time",
        lambda: named.window(minute).top("t", n=1, by="ts"): "a window has a column of this name itself",
        lambda: counted.window(ls.Hopping("1 minute", every="1 second")).top("t", n=1, by="n"): (
            "a window has a column of this name itself"
        ),
    }.items():
        with pytest.raises(InvalidInputError, match=message):
            build()
