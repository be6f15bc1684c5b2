"""Window joins over random epochs, against DuckDB over all rows at once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.support.operators.two_streams import QUESTIONS, Story, answer, outcome

from lakestate.operators.joins import WindowJoin
from lakestate.operators.windows.specs import Hopping, Tumbling
from lakestate.protocol.watermarks import instant
from lakestate.testing import OperatorHarness

WINDOWED = """
    CREATE TABLE {side}_windows AS SELECT *, unnest(range(
        ((floor({time} / {hop}) * {hop}) - {hop} * floor(({size} - 1) / {hop}))::BIGINT,
        (floor({time} / {hop}) * {hop} + 1)::BIGINT, {hop})) AS start
        FROM {side}_rows WHERE {time} IS NOT NULL;
    DELETE FROM {side}_windows WHERE start + {size} <= {time} OR start + {size} + {late} <= seen
"""
"""A row is in all of its windows that were not over when the epoch before ended."""
PAIRS = """SELECT l.a, r.b, start FROM left_windows l JOIN right_windows r USING (k, j, start)"""
IN_WINDOWS = {
    "inner": "SELECT a, b FROM pairs",
    "left": "SELECT l.a, b FROM left_windows l LEFT JOIN pairs USING (a, start)",
    "right": "SELECT a, r.b FROM pairs RIGHT JOIN right_windows r USING (b, start)",
    "full": """SELECT a, b FROM pairs
               UNION ALL SELECT a, NULL FROM left_windows ANTI JOIN pairs USING (a, start)
               UNION ALL SELECT NULL, b FROM right_windows ANTI JOIN pairs USING (b, start)""",
    "semi": "SELECT a FROM left_windows SEMI JOIN pairs USING (a, start)",
    "anti": "SELECT a FROM left_windows ANTI JOIN pairs USING (a, start)",
}


@pytest.mark.parametrize("how", QUESTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_windows_yield_what_all_rows_at_once_say(how: str, seed: int) -> None:
    story = Story(seed)
    size, hop, late = story.random.choice([(5, 5, 0), (8, 3, 0), (6, 2, 4), (10, 10, 3)])
    window = Tumbling(f"{size} us") if size == hop else Hopping(f"{size} us", every=f"{hop} us")
    operator = WindowJoin.over(
        "k bigint, j string", window, left="a bigint, ts timestamp", right="b bigint, at timestamp",
        times=("ts", "at"), how=how, allowed_lateness=f"{late} us",
    )  # fmt: skip
    harness = OperatorHarness(operator, parallelism=story.random.randint(1, 3))
    found: Counter[tuple[Any, ...]] = Counter()
    for number in range(story.random.randint(1, 12)):
        watermark, rows = story.watermark, story.epoch(number)
        if story.random.random() < 0.15:
            harness.crash(**rows, watermark=watermark)
        if story.random.random() < 0.15:
            harness.rescale(story.random.randint(1, 3))
        found += outcome(harness.epoch(**rows, watermark=watermark))
        story.advance()
    found += outcome(harness.drain())
    windows = "; ".join(
        WINDOWED.format(side=side, time=time, size=size, hop=hop, late=late)
        for side, time in (("left", "ts"), ("right", '"at"'))
    )
    assert found == answer(story, PAIRS, IN_WINDOWS[how], before=windows)
    assert [harness.rows(table) for table in operator.tables()] == [[], []]


def test_state_holds_the_rows_of_open_windows() -> None:
    operator = WindowJoin.over(
        "k bigint", Hopping("10 us", every="5 us"), left="ts timestamp", right="at timestamp",
        times=("ts", "at"),
    )  # fmt: skip
    harness = OperatorHarness(operator)
    for now in range(0, 60, 5):
        rows = [{"k": 1, "ts": instant(now)}]
        harness.epoch(left=rows, right=[{"k": 1, "at": instant(now + 1)}], watermark=now)
    kept = [row["ts"] for row in harness.rows("left_rows_10us_every_5us")]
    assert sorted(kept) == [instant(50), instant(55)]
