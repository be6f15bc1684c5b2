"""Windows on Spark: panes computed and merged by Spark SQL, exact against a batch over all rows."""

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
    window = ls.Tumbling("10 seconds")
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
        lambda: (
            keyed.aggregate("a", n=ls.count()).key_by("user").window(window).aggregate("b", n=ls.count())
        ): ("aggregate b cannot take rows that change"),
    }.items():
        with pytest.raises(InvalidInputError, match=message):
            build()
