"""What the hooks of an epoch see does not depend on how far the watermark moved in it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakestate as ls
from lakestate.testing import OperatorHarness

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class OrdersAndPayments(ls.TwoInputOperator):
    """An outer join by hand: an order without a payment is told once the watermark has passed it."""

    output = "id bigint, state string"
    orders = ls.TimeKeyTable(key="id bigint", value="ts timestamp", retention="1 hour")
    payments = ls.TimeKeyTable(key="id bigint", value="ts timestamp", retention="1 hour")

    def process_left(self, batch: pa.RecordBatch, ctx: Any) -> None:
        self.orders.insert(batch)

    def process_right(self, batch: pa.RecordBatch, ctx: Any) -> None:
        self.payments.insert(batch)

    def on_watermark(self, watermark: datetime, ctx: Any) -> Iterator[pa.Table]:
        due = self.orders.rows_between(None, watermark)
        paid = self.payments.rows_of(due)["__query"].unique()
        is_paid = pc.is_in(pa.array(range(due.num_rows), pa.int64()), paid)
        state = pc.if_else(is_paid, "paid", "not paid")
        self.orders.expire(watermark)
        yield pa.table({"id": due["id"], "state": state})


def at(id_: int, time: datetime) -> dict[str, object]:
    return {"id": id_, "ts": time}


@pytest.mark.parametrize("jump", [HOUR / 2, HOUR, 3 * HOUR, timedelta(days=400)], ids=str)
def test_an_outer_join_finds_its_matches_however_far_the_watermark_jumps(jump: timedelta) -> None:
    harness = OperatorHarness(OrdersAndPayments(), parallelism=2)
    harness.epoch(left=[at(1, NOON), at(2, NOON)], right=[at(1, NOON + HOUR / 4)], watermark=NOON - HOUR / 2)
    told = harness.epoch(watermark=NOON + jump)
    assert sorted(told, key=str) == [{"id": 1, "state": "paid"}, {"id": 2, "state": "not paid"}]


def test_rows_expire_with_the_checkpoint_of_the_epoch_whose_watermark_passed_them() -> None:
    harness = OperatorHarness(OrdersAndPayments())
    harness.epoch(right=[at(1, NOON)], watermark=NOON)
    harness.epoch(watermark=NOON + 3 * HOUR)
    assert harness.rows("payments") == []
    told = harness.epoch(left=[at(1, NOON + 4 * HOUR)], watermark=NOON + 5 * HOUR)
    assert told == [{"id": 1, "state": "not paid"}]


def test_rows_of_the_epoch_itself_are_seen_by_its_hooks_and_not_stored_if_they_are_too_old() -> None:
    harness = OperatorHarness(OrdersAndPayments())
    harness.epoch(watermark=NOON)
    told = harness.epoch(left=[at(1, NOON)], right=[at(1, NOON)], watermark=NOON + 3 * HOUR)
    assert told == [{"id": 1, "state": "paid"}]
    assert (harness.rows("orders"), harness.rows("payments")) == ([], [])


def test_an_epoch_that_runs_again_after_a_crash_sees_the_same_rows() -> None:
    harness = OperatorHarness(OrdersAndPayments())
    harness.epoch(left=[at(1, NOON)], right=[at(1, NOON)], watermark=NOON)
    harness.crash(watermark=NOON + 9 * HOUR)
    harness.rescale(3)
    assert harness.epoch(watermark=NOON + 9 * HOUR) == [{"id": 1, "state": "paid"}]


class LastSeen(ls.Operator):
    """Users who were not seen for an hour of event time."""

    output = "user string"
    seen = ls.KeyedTable(
        key="user string", value="at timestamp", ttl=ls.Ttl("1 hour", column="at"), route_by=["user"]
    )

    def process_batch(self, batch: pa.RecordBatch, ctx: Any) -> None:
        self.seen.put(batch)

    def on_watermark(self, watermark: datetime, ctx: Any) -> Iterator[pa.Table]:
        for batch in self.seen.scan():
            gone = pc.less(batch["at"], pa.scalar(watermark - HOUR, batch["at"].type))
            yield pa.table({"user": batch.filter(gone)["user"]})


@pytest.mark.parametrize("jump", [2 * HOUR, timedelta(days=400)], ids=str)
def test_a_time_to_live_by_event_time_ends_after_the_hooks_of_the_epoch(jump: timedelta) -> None:
    harness = OperatorHarness(LastSeen(), parallelism=2)
    harness.epoch([{"user": "ann", "at": NOON}], watermark=NOON)
    assert harness.epoch(watermark=NOON + jump) == [{"user": "ann"}]
    assert harness.epoch() == []
    assert harness.rows("seen") == []
