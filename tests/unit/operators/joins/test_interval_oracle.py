"""Interval joins over random epochs, against DuckDB over all rows at once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from lakestate.operators.joins import IntervalJoin
from lakestate.testing import OperatorHarness

TIME = pa.timestamp("us", tz="UTC")
LEFT = pa.schema([("k", pa.int64()), ("j", pa.string()), ("a", pa.int64()), ("ts", TIME)])
RIGHT = pa.schema([("k", pa.int64()), ("j", pa.string()), ("b", pa.int64()), ("at", TIME)])
BOUNDS = [(0, 10), (-5, 10), (-8, -2), (3, 9), (0, 0), (-4, 0)]
PAIRS = """
    SELECT l.a, r.b FROM left_rows l JOIN right_rows r
    ON l.k = r.k AND l.j = r.j AND r.at - l.ts BETWEEN {lower} AND {upper}
    AND CASE WHEN l.epoch < r.epoch THEN l.ts + {upper} >= r.seen
             WHEN l.epoch > r.epoch THEN r.at - {lower} >= l.seen ELSE true END
"""
"""A row joins rows of its own epoch, and earlier ones as long as a row on time could match them."""
QUESTIONS = {
    "inner": "SELECT a, b FROM pairs",
    "left": "SELECT l.a, b FROM left_rows l LEFT JOIN pairs USING (a)",
    "right": "SELECT a, r.b FROM pairs RIGHT JOIN right_rows r USING (b)",
    "full": """SELECT a, b FROM pairs
               UNION ALL SELECT a, NULL FROM left_rows WHERE a NOT IN (SELECT a FROM pairs)
               UNION ALL SELECT NULL, b FROM right_rows WHERE b NOT IN (SELECT b FROM pairs)""",
    "semi": "SELECT a FROM left_rows WHERE a IN (SELECT a FROM pairs)",
    "anti": "SELECT a FROM left_rows WHERE a NOT IN (SELECT a FROM pairs)",
}


@dataclass
class Story:
    """Epochs of rows, with what each has seen of the watermark."""

    seed: int
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {"left": [], "right": []})
    watermark: int | None = None
    before: int | None = None
    latest: int | None = None

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.late = self.random.choice([0, 0, 4, 25])

    def epoch(self, number: int) -> dict[str, pa.Table]:
        size = self.random.choice([0, 1, 1, 6, 20])
        return {
            "left": self._side("left", "a", "ts", LEFT, number, size),
            "right": self._side("right", "b", "at", RIGHT, number, self.random.choice([0, size, size])),
        }

    def _side(self, side: str, value: str, time: str, schema: pa.Schema, epoch: int, size: int) -> pa.Table:
        new = [self._row(side, value, time, number) for number in range(size)]
        seen = -(10**6) if self.before is None else self.before
        self.rows[side] += [row | {"epoch": epoch, "seen": seen} for row in new]
        self.random.shuffle(new)
        return pa.Table.from_pylist(new, schema=pa.schema([*schema])) if new else schema.empty_table()

    def _row(self, side: str, value: str, time: str, number: int) -> dict[str, Any]:
        now = self.latest or 0
        at = now + self.random.randint(-3 - self.late, 6)
        time_or_none = None if self.random.random() < 0.03 else at
        return {
            "k": self.random.choice([1, 2, 3, None] if self.random.random() < 0.2 else [1, 2]),
            "j": self.random.choice(["x", "x", "x", None]),
            value: len(self.rows[side]) + number,
            time: time_or_none,
        }

    def advance(self) -> None:
        """Move on to the watermark that the next epoch sees."""
        self.before = self.watermark
        times = [row.get("ts", row.get("at")) for rows in self.rows.values() for row in rows]
        known = [time for time in times if time is not None]
        if known:
            self.latest = max(known)
            self.watermark = max(self.latest - 3, self.watermark or -(10**6))


def expected(story: Story, how: str, lower: int, upper: int) -> Counter[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        for side, value, time in (("left", "a", "ts"), ("right", "b", "at")):
            columns = {
                name: [row[name] for row in story.rows[side]]
                for name in ("k", "j", value, time, "epoch", "seen")
            }
            types = [pa.int64(), pa.string(), pa.int64(), pa.int64(), pa.int64(), pa.int64()]
            connection.register(
                f"{side}_rows", pa.table(list(map(pa.array, columns.values(), types)), names=list(columns))
            )
        connection.execute(f"CREATE TABLE pairs AS {PAIRS.format(lower=lower, upper=upper)}")
        return Counter(connection.execute(QUESTIONS[how]).fetchall())


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


def outcome(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[name] for name in ("a", "b") if name in row) for row in rows)


def has(harness: OperatorHarness, table: str) -> bool:
    return table in harness._operator.tables()
