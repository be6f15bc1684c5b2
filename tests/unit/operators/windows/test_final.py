"""Windows that come out once, in a harness, against DuckDB over all rows at once."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from tests.support.operators.disorder import at, disordered_epochs, disturb
from tests.support.operators.window_answers import expected_windows, second

import lakestate as ls
from lakestate.operators.windows import WindowAggregate
from lakestate.testing import OperatorHarness

COLUMNS = "v bigint, ts timestamp"


def aggregates() -> dict[str, ls.Aggregate]:
    return {"n": ls.count(), "total": ls.sum("v"), "most": ls.max("v"), "first": ls.min("ts")}


def windows_of(window: Any, lateness: str = "0 seconds") -> OperatorHarness:
    operator = WindowAggregate.over("k string", COLUMNS, window, allowed_lateness=lateness, **aggregates())
    return OperatorHarness(operator, parallelism=2)


def row(key: str | None, value: int | None, second: float) -> dict[str, Any]:
    return {"k": key, "v": value, "ts": at(second)}


def shown(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(((row["k"], second(row["window_start"]), row["n"], row["total"]) for row in rows), key=str)


@pytest.mark.parametrize("seed", range(12))
def test_windows_are_those_of_all_rows_at_once(seed: int) -> None:
    # The grid is counted from 1970, and the oracle's from 2026: a multiple of all hops later.
    rng = random.Random(seed)
    size, hop, lateness = 10, (10, 2, 4)[seed % 3], (0, 7)[seed % 2]
    window = ls.Hopping(f"{size} seconds", every=f"{hop} seconds")
    harness = windows_of(window, f"{lateness} seconds")
    rows: list[dict[str, Any]] = []
    came: list[dict[str, Any]] = []
    for epoch in disordered_epochs(rng):
        disturb(harness, rng, epoch)
        rng.shuffle(epoch.rows)
        watermark = None if epoch.watermark is None else at(epoch.watermark)
        found = harness.epoch(epoch.table, watermark=watermark)
        assert all(second(each["window_end"]) + lateness <= epoch.watermark for each in found)
        came += found
        rows += [row | {"previous": epoch.previous} for row in epoch.rows]
    came += harness.drain()
    assert sorted(came, key=str) == sorted(expected_windows(rows, size, hop, lateness), key=str)
    assert harness.rows("panes") == []


def test_a_window_comes_out_once_when_the_watermark_passes_its_end() -> None:
    harness = windows_of(ls.Tumbling("10 seconds"))
    assert harness.epoch([row("ann", 1, 3), row("bob", 2, 9.999999), row("ann", 4, 10)]) == []
    assert harness.epoch([row("ann", 8, 1)], watermark=at(9.999999)) == []
    assert shown(harness.epoch([row("ann", 16, 2)], watermark=at(10))) == [
        ("ann", 0, 3, 25),
        ("bob", 0, 1, 2),
    ]
    # Its rows are late from now on, although the watermark has not moved again.
    assert harness.epoch([row("ann", 32, 3)]) == []
    assert shown(harness.epoch(watermark=at(20))) == [("ann", 10, 1, 4)]


def test_rows_that_come_with_the_watermark_that_closes_their_window_count() -> None:
    harness = windows_of(ls.Tumbling("10 seconds"))
    harness.epoch(watermark=at(0))
    assert shown(harness.epoch([row("ann", 1, 5)], watermark=at(100))) == [("ann", 0, 1, 1)]


def test_allowed_lateness_keeps_a_window_open() -> None:
    harness = windows_of(ls.Tumbling("10 seconds"), "5 seconds")
    assert harness.epoch([row("ann", 1, 5)], watermark=at(14)) == []
    assert harness.epoch([row("ann", 2, 6)], watermark=at(14.5)) == []
    assert shown(harness.epoch([row("ann", 4, 7)], watermark=at(15))) == [("ann", 0, 3, 7)]
    assert harness.epoch([row("ann", 8, 8)], watermark=at(40)) == []


def test_a_late_row_counts_in_the_windows_that_are_still_open() -> None:
    harness = windows_of(ls.Hopping("10 seconds", every="5 seconds"))
    harness.epoch(watermark=at(10))
    assert shown(harness.epoch([row("ann", 1, 7)], watermark=at(10))) == []
    assert shown(harness.epoch(watermark=at(30))) == [("ann", 5, 1, 1)]


def test_panes_are_shared_by_windows_and_go_when_no_open_window_has_them() -> None:
    harness = windows_of(ls.Hopping("10 seconds", every="2 seconds"))
    harness.epoch(watermark=at(9))
    harness.epoch([row("ann", 1, second) for second in range(10)])
    assert len(harness.rows("panes")) == 5
    came, sizes = [], []
    for now in (10, 12, 14, 16, 18):
        came += shown(harness.epoch(watermark=at(now)))
        sizes.append(len(harness.rows("panes")))
    assert came == [("ann", start, 10 - start, 10 - start) for start in (0, 2, 4, 6, 8)]
    assert sizes == [4, 3, 2, 1, 0]


def test_what_is_drained_is_gone_and_a_reopened_job_begins_anew() -> None:
    harness = windows_of(ls.Tumbling("10 seconds"))
    harness.epoch([row("ann", 1, 5)], watermark=at(1))
    assert shown(harness.drain([row("ann", 2, 6)])) == [("ann", 0, 2, 3)]
    assert harness.rows("panes") == []
    harness.reopen()
    assert shown(harness.epoch([row("ann", 4, 7)], watermark=at(10))) == [("ann", 0, 1, 4)]


def test_timestamps_without_time_zone_stay_without() -> None:
    operator = WindowAggregate.over("k string", "ts timestamp_ntz", ls.Tumbling("1 day"), n=ls.count())
    harness = OperatorHarness(operator)
    harness.epoch(pa.table({"k": ["ann"], "ts": pa.array([datetime(1969, 12, 31, 5)], pa.timestamp("us"))}))
    assert harness.epoch(watermark=at(0)) == [
        {"k": "ann", "window_start": datetime(1969, 12, 31), "window_end": datetime(1970, 1, 1), "n": 1}
    ]


def test_another_window_cannot_read_the_state() -> None:
    harness = windows_of(ls.Tumbling("10 seconds"))
    harness.epoch([row("ann", 1, 5)])
    assert [table.name for table in harness._operator.tables().values()] == ["panes_10s"]
    other = windows_of(ls.Hopping("10 seconds", every="5 seconds"), "1 minute")
    assert [table.name for table in other._operator.tables().values()] == ["panes_10s_every_5s_late_1m"]
