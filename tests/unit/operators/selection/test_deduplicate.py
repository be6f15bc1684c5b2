"""Deduplication in a harness: what is a duplicate, what is forgotten, and what is too late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakestate.errors import InvalidInputError, LakestateError
from lakestate.operators.selection import FirstRows, FirstRowsForEver, NewestRows, SettledRows
from lakestate.operators.selection.first_rows import first_of_each
from lakestate.testing import OperatorHarness

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.timestamp("us", tz="UTC")), ("n", pa.int32())])


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def rows(*given: tuple[str | None, float | None, int]) -> pa.Table:
    dicts = [{"id": id_, "ts": None if time is None else at(time), "n": n} for id_, time, n in given]
    return pa.Table.from_pylist(dicts, SCHEMA)


def first_within(within: str, **options: Any) -> OperatorHarness:
    return OperatorHarness(
        FirstRows.over("id string", "ts timestamp, n int", time="ts", within=within), **options
    )


def newest(**options: Any) -> OperatorHarness:
    return OperatorHarness(NewestRows.over("id string", "ts timestamp, n int", time="ts", **options))


def numbers(found: list[dict[str, Any]]) -> list[int]:
    return sorted(row["n"] for row in found)


def test_a_row_at_the_end_of_the_time_is_a_duplicate_and_the_next_one_is_not() -> None:
    harness = first_within("10 seconds")
    assert numbers(harness.epoch(rows(("a", 0, 0), ("a", 10, 1), ("a", 10.000001, 2), ("a", 20, 3)))) == [
        0,
        2,
    ]
    assert numbers(harness.epoch(rows(("a", -10, 4), ("a", -10.000001, 5), ("a", 20.000001, 6)))) == [5]
    assert numbers(harness.epoch(rows(("a", 20.000002, 7)))) == [7]


def test_keys_are_forgotten_behind_the_watermark() -> None:
    harness = first_within("10 seconds")
    harness.epoch(rows(("a", 0, 0), ("b", 5, 1), (None, 30, 2)), watermark=at(0))
    assert len(harness.rows("seen")) == 3
    harness.epoch(watermark=at(12))
    assert {row["id"] for row in harness.rows("seen")} == {"b", None}
    harness.epoch(watermark=at(100))
    assert harness.rows("seen") == []
    assert numbers(harness.epoch(rows(("a", 100, 3)))) == [3]


def test_a_row_is_too_late_if_the_watermark_had_passed_it_before_this_epoch() -> None:
    harness = first_within("10 seconds")
    assert numbers(harness.epoch(rows(("a", 0, 0)), watermark=at(50))) == [0]
    # Its key may have been forgotten: nobody knows whether it is new.
    assert numbers(harness.epoch(rows(("b", 49, 1), ("b", 50, 2)), watermark=at(60))) == [2]


def test_a_row_without_event_time_is_refused_where_time_decides() -> None:
    for harness in (first_within("10 seconds"), newest(within="10 seconds")):
        harness.epoch(watermark=at(0))
        harness.epoch(watermark=at(0))
        with pytest.raises(LakestateError, match=r'1 of 2 rows; .*where\("ts IS NOT NULL"\)'):
            harness.epoch(rows(("a", 1, 0), ("a", None, 1)))


def test_tied_rows_are_taken_in_the_order_of_their_columns_however_they_arrive() -> None:
    tied = [("a", 5.0, 3), ("a", 5.0, 1), ("a", 5.0, 2), ("a", 5.0, 1)]
    for shift in range(4):
        given = rows(*tied[shift:], *tied[:shift])
        assert numbers(first_within("1 second").epoch(given)) == [1]
        assert numbers(newest().epoch(given)) == [3]


def test_a_newest_row_is_replaced_by_a_later_one_or_by_the_last_of_those_that_are_tied() -> None:
    harness = newest()
    assert numbers(harness.epoch(rows(("a", None, 0)))) == [0]
    assert numbers(harness.epoch(rows(("a", None, 0)))) == []
    assert numbers(harness.epoch(rows(("a", 1, 5), ("a", 0, 9)))) == [5]
    assert numbers(harness.epoch(rows(("a", 1, 5), ("a", None, 9), ("a", 1, 4)))) == []
    assert numbers(harness.epoch(rows(("a", 1, 6), ("b", 1, 6)))) == [6, 6]
    harness.rescale(3)
    assert sorted((row["id"], row["n"]) for row in harness.rows("newest")) == [("a", 6), ("b", 6)]


def test_a_newest_row_is_forgotten_behind_the_watermark_and_older_ones_do_not_come_back() -> None:
    harness = newest(within="10 seconds")
    harness.epoch(rows(("a", 100, 0)), watermark=at(100))
    harness.epoch(watermark=at(111))
    assert harness.rows("newest") == []
    assert numbers(harness.epoch(rows(("a", 99, 1), ("a", 100.5, 2), ("b", 101, 3)), watermark=at(111))) == [
        3
    ]


def test_changes_have_the_row_before_and_after() -> None:
    harness = newest(emit="changes")
    harness.epoch(rows(("a", 0, 0)))
    assert harness.epoch(rows(("a", 1, 1), ("b", 2, 2))) == [
        {"id": "a", "ts": at(0), "n": 0, "_change": "update_preimage"},
        {"id": "a", "ts": at(1), "n": 1, "_change": "update_postimage"},
        {"id": "b", "ts": at(2), "n": 2, "_change": "insert"},
    ]


def test_keys_are_forgotten_after_processing_time() -> None:
    operator = FirstRowsForEver.over("id string", "n int", ttl="10 seconds")
    harness = OperatorHarness(operator, parallelism=2)
    row = {"id": "a", "n": 1}
    found = [harness.epoch([row], processing_time=at(second)) for second in (0, 5, 10, 10.1, 11, 20.2)]
    assert found == [[row], [], [], [row], [], [row]]


def test_nothing_comes_of_a_crashed_epoch_and_one_row_per_epoch_is_enough() -> None:
    harness = first_within("1 hour", parallelism=2)
    harness.crash(rows(("a", 0, 0)))
    found = [numbers(harness.epoch(rows(("a", second, second)))) for second in range(3)]
    assert found == [[0], [], []]
    assert harness.drain() == []


def test_a_column_that_is_added_to_state_is_refused_in_rows() -> None:
    with pytest.raises(InvalidInputError, match="the name of one that is added: first_seen"):
        FirstRowsForEver.over("first_seen string", "n int")


def test_many_rows_of_a_key_are_chosen_in_steps() -> None:
    times = np.arange(100_000)
    groups = np.zeros(100_000, dtype=np.int64)
    assert first_of_each(groups, times, 9).tolist() == list(range(0, 100_000, 10))
    assert first_of_each(groups[:5], np.full(5, 2**63 - 1), 9).tolist() == [0]


def settled() -> OperatorHarness:
    operator = SettledRows.over("id string", "ts timestamp, n int", time="ts", within="50 seconds")
    return OperatorHarness(operator, parallelism=2)


def test_a_row_is_followed_by_one_that_others_of_its_epoch_follow() -> None:
    harness = settled()
    harness.epoch(rows(("a", 70, 0)))
    harness.epoch(rows(("a", 110, 1), ("a", 150, 2)), watermark=at(100))
    # 110 is not the last of its epoch, and still follows 70.
    assert numbers(harness.epoch(watermark=at(201))) == [2]
    assert harness.rows("pending") == []


def test_a_row_inside_of_a_chain_does_not_hide_where_the_chain_begins() -> None:
    harness = settled()
    harness.epoch(rows(("a", 50, 0), ("a", 90, 1), ("a", 130, 2), ("a", 170, 3)))
    harness.epoch(rows(("a", 120, 4)))
    harness.epoch(rows(("a", 5, 5), ("b", 5, 6)))
    assert numbers(harness.epoch(watermark=at(56))) == [6]
    assert numbers(harness.drain()) == [3]
    assert harness.rows("pending") == []


def test_a_row_after_the_end_of_the_time_does_not_follow() -> None:
    harness = settled()
    harness.epoch(rows(("a", 0, 0), ("a", 50, 1), ("a", 100.000001, 2)), watermark=at(0))
    assert numbers(harness.epoch(watermark=at(100))) == []
    assert numbers(harness.epoch(rows(("a", 99, 3)), watermark=at(100.000001))) == [1]
    assert numbers(harness.drain()) == [2]
