"""What an operator knows of time, and whether it wants to be called because time passes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import lakestate as ls
from lakestate.errors import InvalidInputError
from lakestate.operators import follows_event_time
from lakestate.testing import OperatorHarness

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def minutes(count: int) -> timedelta:
    return timedelta(minutes=count)


class Times(ls.Operator):
    """Yields what its context says at the end of each epoch."""

    output = "watermark timestamp, previous timestamp, now timestamp, is_last boolean"

    def on_epoch_end(self, ctx):
        yield pa.table(
            {
                "watermark": pa.array([ctx.watermark], pa.timestamp("us", "UTC")),
                "previous": pa.array([ctx.previous_watermark], pa.timestamp("us", "UTC")),
                "now": pa.array([ctx.processing_time], pa.timestamp("us", "UTC")),
                "is_last": [ctx.is_last],
            }
        )


def row(
    watermark: datetime | None, previous: datetime | None, now: datetime, *, is_last: bool = False
) -> Any:
    return {"watermark": watermark, "previous": previous, "now": now, "is_last": is_last}


def test_an_epoch_knows_its_times_and_the_watermark_of_the_epoch_before() -> None:
    harness = OperatorHarness(Times())
    assert harness.epoch(processing_time=NOON) == [row(None, None, NOON)]
    assert harness.epoch(watermark=NOON - minutes(9)) == [row(NOON - minutes(9), None, NOON)]
    harness.crash(watermark=NOON)
    later = NOON + minutes(1)
    assert harness.epoch(watermark=NOON - minutes(5), processing_time=later) == [
        row(NOON - minutes(5), NOON - minutes(9), later)
    ]
    harness.pause()
    assert harness.drain(processing_time=later + minutes(1)) == [
        row(NOON - minutes(5), NOON - minutes(5), later + minutes(1), is_last=True)
    ]


def test_processing_time_is_the_same_in_all_subtasks() -> None:
    harness = OperatorHarness(Times(), parallelism=3)
    assert len({found["now"] for found in harness.epoch()}) == 1


def test_processing_time_that_goes_back_is_refused() -> None:
    harness = OperatorHarness(Times())
    harness.epoch(processing_time=NOON)
    with pytest.raises(InvalidInputError, match="processing time never goes back; found 2026-01-01 11:59"):
        harness.epoch(processing_time=NOON - minutes(1))


def test_the_clock_of_a_backend_of_ones_own_is_not_set() -> None:
    harness = OperatorHarness(Times(), backend=ls.ParquetBackend("memory://own-clock", cache_bytes=0))
    with pytest.raises(InvalidInputError, match="with a backend of your own is that of the backend"):
        harness.epoch(processing_time=NOON)


def test_rows_expire_by_the_clock_of_the_harness() -> None:
    class Seen(ls.Operator):
        seen = ls.KeyedTable(key="user string", value="n bigint", ttl="10 minutes")

        def process_batch(self, batch, ctx):
            self.seen.put(batch)

    harness = OperatorHarness(Seen())
    harness.epoch([{"user": "ann", "n": 1}], processing_time=NOON)
    harness.epoch(processing_time=NOON + minutes(9))
    assert harness.rows("seen") == [{"user": "ann", "n": 1}]
    harness.epoch(processing_time=NOON + minutes(11))
    assert harness.rows("seen") == []


def test_an_operator_follows_time_if_it_overrides_a_hook_of_time_or_says_so() -> None:
    class Watches(ls.Operator):
        def on_watermark(self, watermark, ctx): ...

    class Declares(ls.Operator):
        follows_time = True

    class Declines(Watches):
        follows_time = False

    assigned = ls.Operator()
    assigned.on_watermark = lambda watermark, ctx: None  # type: ignore[method-assign]
    operators = [Watches(), Declares(), Declines(), assigned, Times(), ls.Operator()]
    assert [follows_event_time(each) for each in operators] == [True, True, False, True, False, False]


def test_a_time_to_be_called_at_is_a_number_of_microseconds() -> None:
    class Wakes(ls.Operator):
        def on_epoch_end(self, ctx):
            ctx.wake_at(NOON)

    with pytest.raises(ls.OperatorError, match="wake_at takes microseconds since 1970"):
        OperatorHarness(Wakes()).epoch()
