"""Interval joins over random epochs, against DuckDB over all rows at once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.support.operators.two_streams import QUESTIONS, Story, answer, outcome

from lakestate.operators.joins import IntervalJoin
from lakestate.testing import OperatorHarness

BOUNDS = [(0, 10), (-5, 10), (-8, -2), (3, 9), (0, 0), (-4, 0)]
PAIRS = """
    SELECT l.a, r.b FROM left_rows l JOIN right_rows r
    ON l.k = r.k AND l.j = r.j AND r.at - l.ts BETWEEN {lower} AND {upper}
    AND CASE WHEN l.epoch < r.epoch THEN l.ts + {upper} >= r.seen
             WHEN l.epoch > r.epoch THEN r.at - {lower} >= l.seen ELSE true END
"""
"""A row joins rows of its own epoch, and earlier ones as long as a row on time could match them."""


def expected(story: Story, how: str, lower: int, upper: int) -> Counter[tuple[Any, ...]]:
    return answer(story, PAIRS.format(lower=lower, upper=upper), QUESTIONS[how])


def join(how: str, **bounds: Any) -> IntervalJoin:
    operator: IntervalJoin = IntervalJoin.over(
        "k bigint, j string", left="a bigint, ts timestamp", right="b bigint, at timestamp",
        times=("ts", "at"), how=how, **bounds,
    )  # fmt: skip
    return operator


@pytest.mark.parametrize("how", QUESTIONS)
@pytest.mark.parametrize("seed", range(4))
def test_rows_that_come_out_are_those_of_all_rows_at_once(how: str, seed: int) -> None:
    story = Story(seed)
    lower, upper = story.random.choice(BOUNDS)
    harness = OperatorHarness(
        join(how, within=(f"{lower} us", f"{upper} us")), parallelism=story.random.randint(1, 3)
    )
    found: Counter[tuple[Any, ...]] = Counter()
    for number in range(story.random.randint(1, 14)):
        watermark, rows = story.watermark, story.epoch(number)
        if story.random.random() < 0.15:
            harness.crash(**rows, watermark=watermark)
        if story.random.random() < 0.15:
            harness.rescale(story.random.randint(1, 3))
        found += outcome(harness.epoch(**rows, watermark=watermark))
        story.advance()
    found += outcome(harness.drain())
    assert found == expected(story, how, lower, upper)
    harness.reopen()
    assert harness.epoch(watermark=10**9) == []
    sides = [
        table for table in ("left_rows", "right_rows", "left_matched", "right_matched") if has(harness, table)
    ]
    assert {table: harness.rows(table) for table in sides} == {table: [] for table in sides}


def has(harness: OperatorHarness, table: str) -> bool:
    return table in harness._operator.tables()
