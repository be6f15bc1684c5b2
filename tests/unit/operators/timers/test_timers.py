"""Timers of operators: none is lost, none fires twice, whatever happens between setting and firing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import lakestate as ls
from lakestate.errors import InvalidInputError, LakestateError
from lakestate.testing import OperatorHarness

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Remind(ls.Operator):
    """Yields every timer that it was asked to set."""

    output = "user string, at timestamp, why string"
    timers = ls.Timers(key="user string", value="why string")

    def process_batch(self, batch: pa.RecordBatch, ctx: ls.OperatorContext) -> Any:
        self.timers.set(batch, at="due")

    def on_timer(self, rows: pa.Table, ctx: ls.OperatorContext) -> Any:
        yield rows


class RemindByClock(Remind):
    """The same in processing time."""

    timers = ls.Timers(key="user string", value="why string", time="processing")


def row(user: str | None, due: datetime | None, why: str | None = "x") -> dict[str, Any]:
    return {"user": user, "due": due, "why": why}


def fired(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["user"], (row["at"] - START).total_seconds(), row["why"]) for row in rows]


def test_a_timer_fires_once_when_the_watermark_reaches_it() -> None:
    harness = OperatorHarness(Remind(), parallelism=3)
    assert harness.epoch([row("ann", at(10)), row(None, at(5)), row("bob", at(20))]) == []
    assert harness.epoch(watermark=at(4)) == []
    assert sorted(fired(harness.epoch(watermark=at(10))), key=str) == [("ann", 10, "x"), (None, 5, "x")]
    harness.rescale(2)
    assert harness.epoch(watermark=at(19)) == []
    assert fired(harness.epoch(watermark=at(20))) == [("bob", 20, "x")]
    assert harness.epoch(watermark=at(100)) == []
    assert harness.rows("timers") == []


def test_a_timer_in_the_past_fires_in_the_epoch_that_sets_it() -> None:
    harness = OperatorHarness(Remind())
    harness.epoch(watermark=at(50))
    assert fired(harness.epoch([row("ann", at(50)), row("ann", at(51))])) == [("ann", 50, "x")]
    assert fired(harness.epoch([row("ann", at(1))], watermark=at(51))) == [("ann", 1, "x"), ("ann", 51, "x")]


def test_a_timer_that_is_set_twice_fires_once() -> None:
    harness = OperatorHarness(Remind())
    harness.epoch([row("ann", at(10)), row("ann", at(10)), row("ann", at(10), "y")])
    harness.epoch([row("ann", at(10))])
    assert sorted(fired(harness.epoch([row("ann", at(10))], watermark=at(10)))) == [
        ("ann", 10, "x"),
        ("ann", 10, "y"),
    ]


def test_a_crash_fires_a_timer_again_and_loses_none() -> None:
    harness = OperatorHarness(Remind())
    harness.epoch([row("ann", at(10))])
    harness.crash(watermark=at(10))
    assert fired(harness.epoch(watermark=at(10))) == [("ann", 10, "x")]


def test_timers_in_processing_time_leave_later_ones_of_their_key() -> None:
    harness = OperatorHarness(RemindByClock())
    harness.epoch([row("ann", at(10)), row("ann", at(30))], processing_time=at(0))
    assert fired(harness.epoch(processing_time=at(15))) == [("ann", 10, "x")]
    assert harness.epoch(processing_time=at(29)) == []
    assert fired(harness.epoch(processing_time=at(31))) == [("ann", 30, "x")]


def test_the_end_of_the_stream_fires_what_is_set_before_it() -> None:
    class Again(Remind):
        def on_timer(self, rows: pa.Table, ctx: ls.OperatorContext) -> Any:
            yield rows
            later = pa.compute.add(rows["at"], pa.scalar(timedelta(seconds=10)))
            self.timers.set(rows.set_column(rows.schema.get_field_index("at"), "at", later))

    harness = OperatorHarness(Again())
    harness.epoch([row("ann", at(10))], watermark=at(0))
    assert fired(harness.drain()) == [("ann", 10, "x")]
    harness.reopen()
    assert fired(harness.epoch(watermark=at(20))) == [("ann", 20, "x")]


def test_cancelled_timers_do_not_fire() -> None:
    class Cancel(Remind):
        def process_batch(self, batch: pa.RecordBatch, ctx: ls.OperatorContext) -> Any:
            rows = pa.table(batch)
            self.timers.set(rows.filter(rows["due"].is_valid()), at="due")
            self.timers.cancel(rows.filter(rows["due"].is_null()))

    harness = OperatorHarness(Cancel(), parallelism=2)
    harness.epoch([row("ann", at(10)), row("bob", at(10)), row(None, at(10))])
    harness.epoch([row("ann", None), row(None, None)])
    assert fired(harness.epoch([row("eve", at(3)), row("eve", None)], watermark=at(10))) == [("bob", 10, "x")]


def test_what_could_never_fire_is_refused() -> None:
    class Forgotten(ls.Operator):
        timers = ls.Timers(key="user string")

    with pytest.raises(InvalidInputError, match="does not define on_timer"):
        OperatorHarness(Forgotten())
    with pytest.raises(LakestateError, match="a timer has no time"):
        OperatorHarness(Remind()).epoch(pa.Table.from_pylist([row("ann", None)]).cast(
            pa.schema([("user", pa.string()), ("due", pa.timestamp("us", tz="UTC")), ("why", pa.string())])
        ))  # fmt: skip
    with pytest.raises(InvalidInputError, match="timers follow no such time"):
        ls.Timers(key="user string", time="wall")


def test_timers_that_set_timers_in_the_past_for_ever_are_stopped() -> None:
    class Loop(Remind):
        def on_timer(self, rows: pa.Table, ctx: ls.OperatorContext) -> Any:
            self.timers.set(rows)

    harness = OperatorHarness(Loop())
    with pytest.raises(LakestateError, match="timers keep setting timers whose time has passed"):
        harness.epoch([row("ann", at(1))], watermark=at(1))
