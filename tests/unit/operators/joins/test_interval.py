"""Interval joins in a harness: when rows come out, what stays in state, and what is refused."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from lakestate.errors import InvalidInputError
from lakestate.operators.joins import Bounds, How, IntervalJoin
from lakestate.operators.joins.matching import TimedCodes, find_matches
from lakestate.protocol.watermarks import instant
from lakestate.testing import OperatorHarness

HOUR = ("0 seconds", "60 us")


def harness_of(how: str, parallelism: int = 1, **bounds: Any) -> OperatorHarness:
    return OperatorHarness(join_of(how, **bounds), parallelism=parallelism)


def join_of(how: str, **bounds: Any) -> IntervalJoin:
    operator: IntervalJoin = IntervalJoin.over(
        "id bigint",
        left="item string, ts timestamp",
        right="cents bigint, at timestamp",
        times=("ts", "at"),
        how=how,
        **(bounds or {"within": HOUR}),
    )
    return operator


def order(number: int | None, at: int | None, item: str = "cup") -> dict[str, Any]:
    return {"id": number, "item": item, "ts": None if at is None else instant(at)}


def payment(number: int | None, at: int | None, cents: int = 5) -> dict[str, Any]:
    return {"id": number, "cents": cents, "at": None if at is None else instant(at)}


def paid(number: int, ordered: int, at: int, item: str = "cup", cents: int = 5) -> dict[str, Any]:
    return order(number, ordered, item) | {"cents": cents, "at": instant(at)}


UNPAID = {"cents": None, "at": None}
NOT_ORDERED = {"item": None, "ts": None}


def sorted_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(sorted(row.items())))


def test_a_left_row_comes_out_alone_once_the_watermark_has_passed_its_range() -> None:
    harness = harness_of("left")
    assert harness.epoch(left=[order(1, 100), order(2, 100)], watermark=90) == []
    assert harness.epoch(right=[payment(2, 160), payment(1, 161)]) == [paid(2, 100, 160)]
    assert harness.epoch(watermark=160) == []
    assert harness.epoch(watermark=161) == [order(1, 100) | UNPAID]
    assert harness.epoch(watermark=500) == []
    tables = ("left_rows", "right_rows", "left_matched")
    assert [harness.rows(table) for table in tables] == [[], [], []]


def test_rows_on_the_time_of_the_watermark_before_still_match() -> None:
    harness = harness_of("full")
    harness.epoch(left=[order(1, 100)], watermark=100)
    harness.epoch(watermark=160)
    # A step before may yield rows of this time on the watermark that this epoch sees.
    assert harness.epoch(right=[payment(1, 160)], watermark=300) == [paid(1, 100, 160)]
    assert harness.drain() == []


def test_a_late_row_joins_what_is_still_there_and_its_own_epoch() -> None:
    harness = harness_of("full")
    harness.epoch(left=[order(1, 100), order(2, 195)], watermark=200)
    # Order 1 was done with the epoch before; order 2 is not.
    found = harness.epoch(right=[payment(1, 150), payment(2, 196), payment(3, 20)], left=[order(3, 10)])
    assert sorted_rows(found) == sorted_rows(
        [payment(1, 150) | NOT_ORDERED, paid(2, 195, 196), paid(3, 10, 20)]
    )
    assert harness.drain() == []


def test_rows_without_key_or_time_come_out_alone_at_once() -> None:
    harness = harness_of("full", parallelism=2)
    found = harness.epoch(left=[order(None, 5), order(1, None)], right=[payment(None, 5), payment(1, None)])
    assert sorted_rows(found) == sorted_rows(
        [
            order(None, 5) | UNPAID,
            order(1, None) | UNPAID,
            payment(None, 5) | NOT_ORDERED,
            payment(1, None) | NOT_ORDERED,
        ]
    )
    assert harness.rows("left_rows") == []
    assert harness_of("inner").epoch(left=[order(None, 5)], right=[payment(None, 5)]) == []


def test_many_rows_of_a_key_are_all_pairs_and_equal_rows_count_each() -> None:
    harness = harness_of("inner")
    harness.epoch(left=[order(1, 10), order(1, 10), order(1, 12, "jar")])
    found = harness.epoch(right=[payment(1, 11), payment(1, 11), payment(1, 12, 7)])
    pairs = [paid(1, 10, 11)] * 4 + [paid(1, 10, 12, cents=7)] * 2 + [paid(1, 12, 12, "jar", 7)]
    assert sorted_rows(found) == sorted_rows(pairs)


@pytest.mark.parametrize(
    ("how", "first", "second"), [("semi", [order(1, 10)] * 2, []), ("anti", [], [order(2, 10)])]
)
def test_a_row_that_had_a_match_is_done(how: str, first: list[Any], second: list[Any]) -> None:
    harness = harness_of(how)
    harness.epoch(left=[order(1, 10), order(1, 10), order(2, 10)])
    assert harness.epoch(right=[payment(1, 11)]) == first
    harness.rescale(3)
    assert harness.epoch(right=[payment(1, 12), payment(1, 12)]) == []
    assert harness.rows("left_matched") == [{"id": 1, "ts": instant(10), "_epoch": 1}]
    # One that comes after its match is not kept at all.
    harness.epoch(left=[order(1, 12, "jar")])
    assert "jar" not in {row["item"] for row in harness.rows("left_rows")}
    assert harness.drain() == second


def test_state_returns_to_what_is_open() -> None:
    harness = harness_of("full", parallelism=2)
    for number in range(12):
        now = 20 * number
        left = [order(key, now) for key in range(10)]
        right = [payment(key, now + 3) for key in range(5)]
        harness.epoch(left=left, right=right, watermark=now)
    held = {table: len(harness.rows(table)) for table in ("left_rows", "right_rows", "left_matched")}
    assert held == {"left_rows": 40, "right_rows": 5, "left_matched": 0}
    harness.epoch(watermark=10_000)
    assert [harness.rows(table) for table in held] == [[], [], []]


def test_narrower_bounds_lose_no_row_that_is_still_to_come_out() -> None:
    harness = harness_of("left", within=("0 seconds", "500 us"))
    harness.epoch(left=[order(1, 100), order(2, 100)], watermark=300)
    harness.epoch(right=[payment(2, 301)])
    harness.restart(join_of("left", within=("0 seconds", "10 us")))
    assert harness.epoch() == [order(1, 100) | UNPAID]


def test_what_is_kept_for_ever_meets_whatever_its_time_is() -> None:
    harness = harness_of("inner", keep="for ever")
    harness.epoch(left=[order(1, 100)], watermark=50)
    harness.epoch(watermark=10**9)
    assert harness.epoch(right=[payment(1, 9)]) == [paid(1, 100, 9)]


def test_a_drained_job_that_is_opened_again_yields_no_row_twice() -> None:
    harness = harness_of("full")
    harness.epoch(left=[order(1, 10), order(2, 10)], right=[payment(1, 10), payment(3, 10)], watermark=10)
    assert sorted_rows(harness.drain()) == sorted_rows([order(2, 10) | UNPAID, payment(3, 10) | NOT_ORDERED])
    harness.reopen()
    assert harness.epoch(left=[order(2, 11)], right=[payment(2, 12)]) == [paid(2, 11, 12)]
    assert harness.drain() == []


@pytest.mark.parametrize(
    ("within", "keep", "bounds"),
    [
        (("-5 minutes", "1 hour"), None, Bounds(-300_000_000, 3_600_000_000)),
        ((timedelta(seconds=-1), timedelta(0)), None, Bounds(-1_000_000, 0)),
        (None, "1 second", Bounds(-1_000_000, 1_000_000)),
        (None, "for ever", None),
    ],
)
def test_bounds_are_read(within: Any, keep: Any, bounds: Bounds | None) -> None:
    assert Bounds.of(within, keep, "join paid") == bounds


@pytest.mark.parametrize(
    ("within", "keep", "message"),
    [
        (None, None, r'would keep all rows: join paid; pass within=.*keep="7 days".*keep="for ever"'),
        (("0 s", "1 s"), "1 day", "takes within or keep, not both"),
        ("1 hour", None, "within takes two bounds"),
        (("1 hour",), None, "within takes two bounds"),
        (("2 s", "1 s"), None, "the lower bound of within is above the upper one"),
        (("0 s", "soon"), None, "not a duration"),
        (("0 s", "9000000 days"), None, "further apart than rows can be"),
        (None, "always", "not a duration"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(within: Any, keep: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Bounds.of(within, keep, "join paid")


def test_an_unknown_way_to_join_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"join paid; found how='outer'; expected 'inner', 'left'"):
        How.of("outer", "join paid")


def test_matches_are_those_of_every_row_with_every_other() -> None:
    for seed in range(60):
        choose = random.Random(seed)
        scale, many = (2**56, 2**20) if seed % 3 == 0 else (1, 1)
        left, right = (
            TimedCodes(
                np.array([choose.randrange(4) * many for _ in range(size)], dtype=np.int64),
                np.array([choose.randrange(20) * scale for _ in range(size)], dtype=np.int64),
            )
            for size in (choose.randrange(30), choose.randrange(30))
        )
        lower, upper = sorted(choose.randrange(-9, 9) * scale for _ in range(2))
        expected = [
            (one, other)
            for one in range(len(left))
            for other in range(len(right))
            if left.codes[one] == right.codes[other]
            and lower <= int(right.times_us[other]) - int(left.times_us[one]) <= upper
        ]
        matches = find_matches(left, right, lower, upper)
        found = [
            pair for part in matches.pairs(3) for pair in zip(*(each.tolist() for each in part), strict=True)
        ]
        assert sorted(found) == expected
        assert np.flatnonzero(matches.left).tolist() == sorted({one for one, _ in expected})
        assert np.flatnonzero(matches.right).tolist() == sorted({other for _, other in expected})
