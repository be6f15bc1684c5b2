"""Random epochs of two streams out of order, and what DuckDB says of all their rows at once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")
LEFT = pa.schema([("k", pa.int64()), ("j", pa.string()), ("a", pa.int64()), ("ts", TIME)])
RIGHT = pa.schema([("k", pa.int64()), ("j", pa.string()), ("b", pa.int64()), ("at", TIME)])
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


def answer(story: Story, pairs: str, question: str, before: str = "SELECT 1") -> Counter[tuple[Any, ...]]:
    """The rows that a join yields whose pairs a query finds."""
    with duckdb.connect() as connection:
        for side, value, time in (("left", "a", "ts"), ("right", "b", "at")):
            names = ("k", "j", value, time, "epoch", "seen")
            types = [pa.int64(), pa.string(), *[pa.int64()] * 4]
            columns = [
                pa.array([row[name] for row in story.rows[side]], type_)
                for name, type_ in zip(names, types, strict=True)
            ]
            connection.register(f"{side}_rows", pa.table(columns, names=list(names)))
        connection.execute(before)
        connection.execute(f"CREATE TABLE pairs AS {pairs}")
        return Counter(connection.execute(question).fetchall())


def outcome(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """What a join has yielded, by the numbers of the rows."""
    return Counter(tuple(row[name] for name in ("a", "b") if name in row) for row in rows)
