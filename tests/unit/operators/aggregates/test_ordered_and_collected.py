"""Ties, limits and bad input of first, last, min_by, max_by, collect_list, collect_set and count_distinct."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from typing import Any

import pytest

import lakestate as ls
from lakestate.errors import InvalidInputError
from lakestate.operators.aggregates import RunningAggregate
from lakestate.testing import OperatorHarness


def over(columns: str, **aggregates: Any) -> OperatorHarness:
    return OperatorHarness(RunningAggregate.over("user string", columns, **aggregates))


def test_ties_are_broken_by_the_value_in_any_order_of_rows() -> None:
    rows = [(1, "b"), (1, "a"), (1, None), (3, "y"), (3, None), (3, "z"), (None, "q")]
    for seed in range(5):
        random.Random(seed).shuffle(rows)
        harness = over("n bigint, t string", low=ls.min_by("t", "n"), high=ls.max_by("t", "n"))
        for part in (rows[:3], rows[3:]):
            found = harness.epoch([{"user": "ann", "n": n, "t": t} for n, t in part])
        assert found == [{"user": "ann", "low": "a", "high": "z"}]


def test_nan_loses_among_equals_and_never_decides() -> None:
    harness = over("by double, x double", top=ls.max_by("x", "by"), bottom=ls.min_by("x", "by"))
    rows = [(math.nan, 7.0), (1.0, math.nan), (1.0, 2.0)]
    (found,) = harness.epoch([{"user": "ann", "by": by, "x": x} for by, x in rows])
    assert found == {"user": "ann", "top": 2.0, "bottom": 2.0}


def test_first_and_last_follow_event_time_and_not_arrival() -> None:
    harness = over("ts timestamp, t string", time="ts", opened=ls.first("t"), closed=ls.last("t"))
    times = {second: datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in range(10)}
    harness.epoch([{"user": "ann", "ts": times[5], "t": "e"}])
    found = harness.epoch([{"user": "ann", "ts": times[s], "t": t} for s, t in ((7, "g"), (2, "b"))])
    assert found == [{"user": "ann", "opened": "b", "closed": "g"}]
    assert harness.rows("groups") == [
        {"user": "ann", "opened": "b", "opened_time": times[2], "closed": "g", "closed_time": times[7]}
    ]


def test_a_collection_keeps_the_least_values_up_to_its_limit() -> None:
    harness = over("n bigint", some=ls.collect_list("n", limit=3), different=ls.collect_set("n", limit=3))
    harness.epoch([{"user": "ann", "n": n} for n in (9, 9, 1, None)])
    assert harness.epoch([{"user": "ann", "n": n} for n in (1, 5, 7)]) == [
        {"user": "ann", "some": [1, 1, 5], "different": [1, 5, 7]}
    ]


def test_distinct_values_are_rows_of_a_table_that_aggregates_share() -> None:
    harness = over("n bigint", a=ls.count_distinct("n"), b=ls.count_distinct("n"))
    harness.epoch([{"user": "ann", "n": n} for n in (1, 2, 2, None)])
    assert harness.epoch([{"user": "ann", "n": n} for n in (2, 3)]) == [{"user": "ann", "a": 3, "b": 3}]
    assert sorted(harness.rows("distinct_n"), key=str) == [
        {"user": "ann", "_value": n, "a": True, "b": True} for n in (1, 2, 3)
    ]


def test_a_value_that_was_counted_is_not_written_again() -> None:
    harness = over("n bigint", a=ls.count_distinct("n"))
    harness.epoch([{"user": "ann", "n": 1}])
    before = harness.rows("distinct_n")
    (found,) = harness.epoch([{"user": "ann", "n": 1}])
    assert (found["a"], harness.rows("distinct_n")) == (1, before)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: over("t string", v=ls.variance("t")),
            r"variance\(t\) of v; found string; expected a number",
        ),
        (
            lambda: over("t string", v=ls.last("t")),
            r"needs event time, and the rows have none: last\(t\) of v",
        ),
        (lambda: over("a array<int>", v=ls.collect_set("a")), "expected a type with an order"),
        (lambda: over("a array<int>", v=ls.count_distinct("a")), "expected a plain type"),
        (lambda: over("a array<int>, n int", v=ls.max_by("a", "n")), "expected a type with an order"),
        (lambda: ls.collect_list("n", limit=0), "found 0; expected a number from 1 to 1,000,000"),
        (lambda: over("n int", _value=ls.count_distinct("n")), "a name is taken by a table of values"),
    ],
)
def test_what_does_not_fit_is_refused(build: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        build()
