"""Initial state in a harness: filled once, before the first row, and never again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakestate as ls
from lakestate.errors import LakestateError
from lakestate.testing import OperatorHarness


class Count(ls.Operator):
    """Counts rows, and says at its start whether it was called."""

    output = "user string, n bigint"
    counts = ls.KeyedTable("stored", key="user string", value="n bigint")
    visits = ls.TimeKeyTable(key="user string", value="ts timestamp")

    def on_start(self, ctx: ls.OperatorContext) -> None:
        assert ctx.epoch > 1, "no operator is called in the epoch that fills tables"

    def process_batch(self, batch: pa.RecordBatch, ctx: ls.OperatorContext) -> Any:
        rows = pa.table(batch).group_by("user").aggregate([([], "count_all")])
        n = pc.add(rows["count_all"], self.counts.get(rows)["n"].fill_null(0))
        self.counts.put(pa.table({"user": rows["user"], "n": n}))
        yield pa.table({"user": rows["user"], "n": n})


def test_the_first_rows_find_the_initial_state() -> None:
    initial = {
        "counts": [{"user": "ann", "n": 10}, {"user": None, "n": 5}],
        "visits": [{"user": "ann", "ts": datetime(2026, 1, 1, tzinfo=UTC)}] * 2,
    }
    harness = OperatorHarness(Count(), parallelism=3, initial=initial)
    assert len(harness.rows("visits")) == 2
    assert harness.epoch([{"user": "ann"}, {"user": "bob"}]) in (
        [{"user": "ann", "n": 11}, {"user": "bob", "n": 1}],
        [{"user": "bob", "n": 1}, {"user": "ann", "n": 11}],
    )
    harness.rescale(2)
    assert sorted(harness.rows("counts"), key=str) == [
        {"user": "ann", "n": 11},
        {"user": "bob", "n": 1},
        {"user": None, "n": 5},
    ]


def test_two_rows_of_one_key_are_refused() -> None:
    initial = {"counts": [{"user": "ann", "n": 1}, {"user": "ann", "n": 2}]}
    with pytest.raises(LakestateError, match="rows of an initial state have the same key"):
        OperatorHarness(Count(), initial=initial)
