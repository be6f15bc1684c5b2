"""Keyed functions on Spark."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.spark.pipelines import (
    EVENTS,
    START,
    events,
    read_output,
    read_stream,
    run_available,
    write_input,
)

import lakestate as ls
from lakestate.errors import InvalidInputError

GAP = timedelta(seconds=30)


class Gaps(ls.KeyedFunction):
    """Yields a user who was silent for half a minute, with the number of rows before."""

    output = "user string, since timestamp, n bigint"
    timers = "event"
    n = ls.ValueState("bigint", default=0)
    last = ls.ValueState("timestamp")

    def process(self, key: Any, rows: Any, state: Any) -> Any:
        for row in rows:
            if state.last is not None and row.ts >= state.last + GAP:
                yield from self.end(key, state)
            state.n += 1
            state.last = max(filter(None, (state.last, row.ts)))
        state.timers.cancel()
        state.timers.at(state.last + GAP)

    def on_timer(self, key: Any, time: datetime, state: Any) -> Any:
        yield from self.end(key, state)

    def end(self, key: Any, state: Any) -> Any:
        yield key, state.last, state.n
        state.clear()


def expected_gaps(rows: list[dict[str, Any]], watermark: datetime) -> list[tuple[Any, ...]]:
    found = []
    for user in {row["user"] for row in rows}:
        n, last = 0, None
        for time in [*sorted(row["ts"] for row in rows if row["user"] == user), None]:
            if last is not None and (time >= last + GAP if time else last + GAP <= watermark):
                found.append((user, last, n))
                n = 0
            n, last = n + 1, time
    return sorted(found, key=str)


def test_a_keyed_function_with_timers_is_exact_on_spark(spark: Any, tmp_path: Path) -> None:
    tables = [events(number, 60, users=6) for number in range(3)]
    for number, table in enumerate(tables):
        write_input(tmp_path / "in", number, table)
    pipeline = ls.Pipeline("job", tmp_path / "checkpoints", parallelism=2, cache_dir=tmp_path / "cache")
    source = pipeline.source(read_stream(spark, tmp_path / "in"), event_time="ts", delay="0 seconds")
    source.key_by("user").process("gaps", Gaps()).sink("out", ls.ParquetSink(tmp_path / "out"))
    # The watermark reaches the operator one epoch after the rows that moved it.
    write_input(tmp_path / "in", 3, EVENTS.empty_table())
    run_available(pipeline, finish_files=True)
    rows = [row for table in tables for row in table.to_pylist()]
    found = [(row["user"], row["since"], row["n"]) for row in read_output(tmp_path / "out")]
    assert sorted(found, key=str) == expected_gaps(rows, max(row["ts"] for row in rows))
    assert rows[0]["ts"] > START


def test_timers_without_event_time_are_refused_when_the_pipeline_is_built(spark: Any, tmp_path: Path) -> None:
    write_input(tmp_path / "in", 0, events(0, 1))
    pipeline = ls.Pipeline("job", tmp_path / "checkpoints", parallelism=2)
    keyed = pipeline.source(read_stream(spark, tmp_path / "in")).key_by("user")
    with pytest.raises(InvalidInputError, match="process gaps needs event time, and the rows have none"):
        keyed.process("gaps", Gaps())
    with pytest.raises(InvalidInputError, match="cannot take rows that change"):
        keyed.aggregate("counts", n=ls.count()).key_by("user").process("gaps", Gaps())
