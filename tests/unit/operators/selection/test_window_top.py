"""Top-N of windows in a harness: when windows close, what is too late, and rows of a window before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import lakestate as ls
from lakestate.errors import InvalidInputError, LakestateError
from lakestate.operators.selection import WindowTop
from lakestate.testing import OperatorHarness

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
TIME = pa.timestamp("us", tz="UTC")


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def rows(*given: tuple[float | None, int], **columns: list[Any]) -> pa.Table:
    panes = [None if time is None else int(at(time // 10 * 10).timestamp() * 10**6) for time, _ in given]
    plain = {"k": ["a"] * len(given), "x": [x for _, x in given]}
    times = {name: pa.array(values, TIME) for name, values in columns.items()}
    return pa.table(plain | {"_pane": pa.array(panes, pa.int64())} | times)


def top(columns: str = "x int", **options: Any) -> OperatorHarness:
    operator = WindowTop.over("k string", columns, ls.Tumbling("10 seconds"), n=1, by="x desc", **options)
    return OperatorHarness(operator)


def shown(found: list[dict[str, Any]]) -> list[tuple[float, int]]:
    return [((row["window_start"] - START).total_seconds(), row["x"]) for row in found]


def test_a_window_comes_out_once_when_the_watermark_reaches_its_end() -> None:
    harness = top()
    assert harness.epoch(rows((1, 5), (9.9, 7), (10, 3)), watermark=at(0)) == []
    assert harness.epoch(watermark=at(9.9)) == []
    assert shown(harness.epoch(rows((5, 6)), watermark=at(10))) == [(0, 7)]
    assert shown(harness.epoch(rows((5, 100), (11, 4)), watermark=at(15))) == []
    assert shown(harness.drain()) == [(10, 4)]
    harness.reopen()
    assert harness.drain() == []


def test_a_late_row_counts_until_its_window_was_closed() -> None:
    harness = top(allowed_lateness="5 seconds")
    harness.epoch(rows((1, 5)), watermark=at(14))
    assert shown(harness.epoch(rows((2, 6)), watermark=at(15))) == [(0, 6)]
    assert shown(harness.epoch(rows((2, 7)), watermark=at(100))) == []


def test_a_row_without_time_is_in_no_window() -> None:
    assert shown(top().epoch(rows((None, 9), (1, 5)), watermark=at(10))) == [(0, 5)]
    assert top().epoch(rows((None, 9)), watermark=at(10)) == []


def test_rows_of_a_window_before_keep_it_if_it_ends_at_the_same_time() -> None:
    harness = top("x int, window_start timestamp, window_end timestamp")
    given = rows((1, 5), (2, 6), window_start=[at(-20), at(-20)], window_end=[at(10), at(10)])
    assert harness.epoch(given, watermark=at(10)) == [
        {"k": "a", "x": 6, "window_start": at(-20), "window_end": at(10), "rank": 1}
    ]
    other = rows((11, 5), window_start=[at(0)], window_end=[at(11)])
    with pytest.raises(LakestateError, match="rows of a window are in another one that ends at another time"):
        harness.epoch(other)


def test_half_of_a_window_and_overlapping_ones_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="a window has a column of this name itself: window_end"):
        top("x int, window_end timestamp")
    hopping = ls.Hopping("10 seconds", every="1 second")
    with pytest.raises(InvalidInputError, match="a window has a column of this name itself"):
        WindowTop.over("k string", "window_start timestamp, window_end timestamp", hopping, n=1, by="k")
