"""Deduplication on Spark: first and last rows of keys, against Spark SQL over all rows."""

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


def source_of(spark: Any, folder: Path, **options: Any) -> tuple[ls.Pipeline, Any]:
    pipeline = ls.Pipeline("job", folder / "checkpoints", parallelism=2, cache_dir=folder / "cache")
    return pipeline, pipeline.source(read_stream(spark, folder / "in"), **options)


def ask_spark(spark: Any, folder: Path, sql: str) -> list[dict[str, Any]]:
    spark.read.schema(EVENTS_DDL).parquet(str(folder / "in")).createOrReplaceTempView("rows")
    rows: list[dict[str, Any]] = spark.sql(sql).toArrow().to_pylist()
    return sorted(rows, key=str)


def test_the_first_and_the_last_row_of_each_key_come_out(spark: Any, tmp_path: Path) -> None:
    for number in range(3):
        write_input(tmp_path / "in", number, events(number, 300))
    pipeline, source = source_of(spark, tmp_path, event_time="ts", delay="1 day")
    keyed = source.key_by("upper(user) AS who")
    first = keyed.deduplicate("first", within="1 hour")
    last = keyed.deduplicate("last", keep="last", within="for ever")
    assert (first.kind.kind, last.kind.kind, last.kind.key) == (RowKind.APPEND, RowKind.UPSERT, ("who",))
    first.sink("out", ls.ParquetSink(tmp_path / "first"))
    last.as_log().sink("log", ls.ParquetSink(tmp_path / "last"))
    run_available(pipeline, finish_files=True)
    number = "row_number() OVER (PARTITION BY user ORDER BY ts{})"
    ranked = f"SELECT *, upper(user) AS who FROM rows QUALIFY {number} = 1"
    # The times of each file are after those of the file before.
    assert sorted(read_output(tmp_path / "first"), key=str) == ask_spark(spark, tmp_path, ranked.format(""))
    newest = {row["who"]: row for row in sorted(read_output(tmp_path / "last"), key=lambda row: row["ts"])}
    assert sorted(newest.values(), key=str) == ask_spark(spark, tmp_path, ranked.format(" DESC"))


def test_the_last_rows_of_keys_come_out_once_and_are_on_time_for_a_window(spark: Any, tmp_path: Path) -> None:
    for number in range(3):
        write_input(tmp_path / "in", number, events(number, 300))
    pipeline, source = source_of(spark, tmp_path, event_time="ts", delay="1 second")
    last = source.key_by("user").deduplicate("last", keep="last", within="50 seconds", emit="final")
    assert last.kind.kind is RowKind.APPEND
    counted = (
        last.key_by("length(user) AS size").window(ls.Tumbling("1 minute")).aggregate("ends", n=ls.count())
    )
    counted.sink("out", ls.ParquetSink(tmp_path / "out"))
    run_available(pipeline, drain=True)
    lead = "lead(ts) OVER (PARTITION BY user ORDER BY ts)"
    expected = ask_spark(
        spark,
        tmp_path,
        "SELECT size, window.start AS window_start, window.end AS window_end, count(*) AS n FROM ("
        f"SELECT length(user) AS size, ts, {lead} AS next FROM rows) "
        "WHERE next IS NULL OR next > ts + INTERVAL 50 SECONDS "
        "GROUP BY size, window(ts + INTERVAL 50 SECONDS, '1 minute')",
    )
    assert sorted(read_output(tmp_path / "out"), key=str) == expected


def test_what_does_not_fit_is_refused_when_the_pipeline_is_built(spark: Any, tmp_path: Path) -> None:
    write_input(tmp_path / "in", 0, events(0, 1))
    _, source = source_of(spark, tmp_path, event_time="ts")
    keyed, untimed = source.key_by("user"), source.select("user", "amount").key_by("user")
    named = source.select("user", "ts", "amount AS first_seen").key_by("user")
    for build, message in {
        lambda: keyed.deduplicate(
            "d"
        ): 'it is not said for how long keys are remembered: .* within="for ever"',
        lambda: keyed.deduplicate("d", within="1 fortnight"): "unknown unit of time",
        lambda: keyed.deduplicate("d", within="1 day", keep="any"): "unknown value of keep",
        lambda: keyed.deduplicate("d", within="1 day", time="my"): "unknown value of time",
        lambda: keyed.deduplicate(
            "d", within="1 day", emit="updates"
        ): "the first row of a key never changes",
        lambda: keyed.deduplicate(
            "d", within="1 day", keep="last", time="processing"
        ): "decided by event time",
        lambda: keyed.deduplicate("d", within="for ever", keep="last", emit="final"): "is never final",
        lambda: untimed.deduplicate("d", within="1 day"): "deduplicate d needs event time",
        lambda: untimed.deduplicate("d", within="for ever", keep="last"): "deduplicate d needs event time",
        lambda: named.deduplicate("d", within="1 day"): "with the name of one that is added: first_seen",
        lambda: keyed.aggregate("a", n=ls.count()).key_by("user").deduplicate("d", within="1 day"): (
            "deduplicate d cannot take rows that change"
        ),
    }.items():
        with pytest.raises(InvalidInputError, match=message):
            build()
