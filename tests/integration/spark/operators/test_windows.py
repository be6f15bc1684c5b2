"""Windows on Spark: panes computed and merged by Spark SQL, exact against a batch over all rows."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.spark.pipelines import (
    EVENTS_DDL,
    START,
    events,
    read_output,
    read_stream,
    run_available,
    write_input,
)

import lakestate as ls
from lakestate.errors import InvalidInputError
from lakestate.row_kind import RowKind


def pipeline_over(spark: Any, folder: Path, **options: Any) -> tuple[ls.Pipeline, Any]:
    pipeline = ls.Pipeline("job", folder / "checkpoints", parallelism=2, cache_dir=folder / "cache")
    options = {"event_time": "ts", "delay": "100 seconds"} | options
    return pipeline, pipeline.source(read_stream(spark, folder / "in"), **options)


def batch_answer(spark: Any, folder: Path, sql: str) -> list[dict[str, Any]]:
    spark.read.schema(EVENTS_DDL).parquet(str(folder / "in")).createOrReplaceTempView("rows")
    return sorted(spark.sql(sql).toArrow().to_pylist(), key=str)


def output(folder: Path, name: str) -> list[dict[str, Any]]:
    return sorted(read_output(folder / name), key=str)


def test_windows_by_key_are_those_of_a_batch(spark: Any, tmp_path: Path) -> None:
    for number in range(3):
        write_input(tmp_path / "in", number, events(number, 400))
    pipeline, source = pipeline_over(spark, tmp_path)
    hot = (
        source.key_by("upper(user) AS who")
        .window(ls.Hopping("20 seconds", every="5 seconds"))
        .aggregate("hot", n=ls.count(), large=ls.count(where="amount > 50"), euros=ls.sum("amount * 4"))
    )
    assert hot.kind.kind is RowKind.APPEND
    hot.sink("out", ls.ParquetSink(tmp_path / "out"))
    # A window over the results of another one counts them in the window in which they ended.
    hot.key_by("who").window(ls.Tumbling("20 seconds")).aggregate("best", most=ls.max("n")).sink(
        "best_out", ls.ParquetSink(tmp_path / "best")
    )
    run_available(pipeline, drain=True)
    windows = (
        "SELECT upper(user) AS who, window.start AS window_start, window.end AS window_end, count(1) AS n, "
        "count_if(amount > 50) AS large, sum(amount * 4) AS euros "
        "FROM rows GROUP BY upper(user), window(ts, '20 seconds', '5 seconds')"
    )
    assert output(tmp_path, "out") == batch_answer(spark, tmp_path, windows)
    best = (
        f"SELECT who, w.start AS window_start, w.end AS window_end, most FROM (SELECT who, max(n) AS most, "
        f"window(window_end - INTERVAL 1 MICROSECOND, '20 seconds') AS w FROM ({windows}) GROUP BY who, w)"
    )
    assert output(tmp_path, "best") == batch_answer(spark, tmp_path, best)


def test_what_does_not_fit_is_refused_when_the_pipeline_is_built(spark: Any, tmp_path: Path) -> None:
    write_input(tmp_path / "in", 0, events(0, 1))
    _, source = pipeline_over(spark, tmp_path)
    _, timeless = pipeline_over(spark, tmp_path, event_time=None)
    window, by_clock = ls.Tumbling("10 seconds"), ls.Tumbling("10 seconds", time="processing")
    keyed = source.key_by("user")
    for build, message in {
        lambda: timeless.key_by("user").window(window).aggregate("a", n=ls.count()): (
            "a window of aggregate a needs event time, and the rows have none"
        ),
        lambda: keyed.window("10 seconds").aggregate("a", n=ls.count()): "not a window; found '10 seconds'",
        lambda: keyed.window(window).aggregate("a", n=ls.sum("amonut")): "do not have: amonut",
        lambda: keyed.window(window).aggregate("a", window_start=ls.count()): (
            "a window has a column of this name itself: window_start of aggregate a"
        ),
        lambda: source.key_by("user AS window_end").window(window).aggregate("a", n=ls.count()): (
            "a window has a column of this name itself: window_end of aggregate a"
        ),
        lambda: keyed.window(window).aggregate("a"): "an aggregate needs something to compute",
        lambda: keyed.window(window).aggregate("a", emit="often", n=ls.count()): "unknown emission",
        lambda: keyed.window(window, allowed_lateness="-1 second"): "not a duration",
        lambda: keyed.window(ls.Session("1 minute")).aggregate("a", emit="updates", n=ls.count()): (
            "sessions that become one cannot be told as updates"
        ),
        lambda: source.window(ls.Session("1 minute")).aggregate("a", n=ls.count()): "sessions need a key",
        lambda: keyed.window(by_clock).aggregate("a", emit="changes", n=ls.count()): (
            "a window of processing time comes out once"
        ),
        lambda: keyed.window(by_clock).aggregate("a1", n=ls.count()).late_rows(): (
            "no row is late by processing time"
        ),
        lambda: (
            keyed.aggregate("a2", n=ls.count()).key_by("user").window(window).aggregate("b", n=ls.count())
        ): ("aggregate b cannot take rows that change"),
    }.items():
        with pytest.raises(InvalidInputError, match=message):
            build()


def test_windows_over_all_rows_and_sessions_are_those_of_a_batch(spark: Any, tmp_path: Path) -> None:
    for number in range(3):
        write_input(tmp_path / "in", number, events(number, 300, users=10))
    pipeline, source = pipeline_over(spark, tmp_path)
    all_rows = source.window(ls.Hopping("20 seconds", every="15 seconds"))
    all_rows.aggregate("all", n=ls.count(), top=ls.max("amount")).sink("a", ls.ParquetSink(tmp_path / "all"))
    newest = all_rows.aggregate("newest", emit="updates", n=ls.count())
    assert str(newest.kind) == "updates by window_start"
    newest.as_log().sink("b", ls.ParquetSink(tmp_path / "newest"))
    visits = source.key_by("user").window(ls.Session("10 seconds"))
    visits.aggregate("visits", n=ls.count(), spend=ls.sum("amount * 4")).sink(
        "c", ls.ParquetSink(tmp_path / "visits")
    )
    run_available(pipeline, drain=True)
    windows = (
        "SELECT window.start AS window_start, window.end AS window_end, count(1) AS n{more} "
        "FROM rows GROUP BY window(ts, '20 seconds', '15 seconds')"
    )
    expected = batch_answer(spark, tmp_path, windows.format(more=", max(amount) AS top"))
    assert output(tmp_path, "all") == expected
    last = {row["window_start"]: row for row in sorted(output(tmp_path, "newest"), key=lambda row: row["n"])}
    assert sorted(last.values(), key=str) == batch_answer(spark, tmp_path, windows.format(more=""))
    sessions = """
        SELECT user, min(ts) AS window_start, max(ts) + INTERVAL 10 SECONDS AS window_end,
               count(1) AS n, sum(amount * 4) AS spend
        FROM (SELECT *, count_if(begins) OVER (PARTITION BY user ORDER BY ts) AS number FROM (
            SELECT *, coalesce(ts - lag(ts) OVER (PARTITION BY user ORDER BY ts) >= INTERVAL 10 SECONDS,
                               true) AS begins FROM rows))
        GROUP BY user, number
    """
    assert output(tmp_path, "visits") == batch_answer(spark, tmp_path, sessions)


def test_rows_that_no_window_takes_are_late_rows(spark: Any, tmp_path: Path) -> None:
    table = events(0, 4)
    times = [(5, "ann"), (45, "bob"), (47, "eve"), (12, "late"), (None, "timeless"), (70, "end")]
    for number, (second, user) in enumerate(times):
        ts = None if second is None else START + timedelta(seconds=second)
        row = {"user": user, "amount": 1.0, "ts": ts}
        write_input(tmp_path / "in", number, pa.Table.from_pylist([row], schema=table.schema))
    pipeline, source = pipeline_over(spark, tmp_path, delay="0 seconds")
    counts = (
        source.key_by("upper(user) AS who")
        .window(ls.Tumbling("10 seconds"), allowed_lateness="5 seconds")
        .aggregate("counts", n=ls.count())
    )
    counts.late_rows().sink("late", ls.ParquetSink(tmp_path / "late"))
    counts.sink("out", ls.ParquetSink(tmp_path / "out"))
    run_available(pipeline, drain=True)
    assert [row["user"] for row in output(tmp_path, "late")] == ["late", "timeless"]
    assert [row["who"] for row in output(tmp_path, "out")] == ["ANN", "BOB", "END", "EVE"]


def test_windows_of_processing_time_count_every_row_once(spark: Any, tmp_path: Path) -> None:
    for number in range(2):
        write_input(tmp_path / "in", number, events(number, 200, users=5))
    pipeline, source = pipeline_over(spark, tmp_path, event_time=None, delay="0 seconds")
    window = ls.Tumbling("1 second", time="processing")
    source.key_by("user").window(window).aggregate("counts", n=ls.count()).sink(
        "out", ls.ParquetSink(tmp_path / "out")
    )
    source.window(window).aggregate("all", n=ls.count()).sink("all_out", ls.ParquetSink(tmp_path / "all"))
    run_available(pipeline, drain=True)
    counted: Counter[str | None] = Counter()
    for row in output(tmp_path, "out"):
        counted[row["user"]] += row["n"]
    expected = batch_answer(spark, tmp_path, "SELECT user, count(1) AS n FROM rows GROUP BY user")
    assert counted == {row["user"]: row["n"] for row in expected}
    assert sum(row["n"] for row in output(tmp_path, "all")) == 400
