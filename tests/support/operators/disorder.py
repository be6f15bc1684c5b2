"""Random epochs of rows out of order, with a watermark, and what happens to a job in between."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])


def at(second: float) -> datetime:
    """A time some seconds after the start."""
    return START + timedelta(seconds=second)


@dataclass(frozen=True)
class DisorderedEpoch:
    """Rows, the watermark of their epoch, and that of the epoch before, in seconds."""

    rows: list[dict[str, Any]]
    watermark: float | None
    previous: float | None

    @property
    def table(self) -> pa.Table:
        """The rows as Arrow."""
        return pa.Table.from_pylist(self.rows, schema=SCHEMA)


def disordered_epochs(rng: random.Random, count: int = 12) -> Iterator[DisorderedEpoch]:
    """Epochs whose rows are up to 20 seconds out of order, some of them late; some without rows.

    Times are halves of seconds, so that many are equal. Keys, values and times may be null.
    """
    reached, previous = 0.0, None
    watermark: float | None = None
    for _ in range(count):
        size = rng.choice([0, 1, rng.randrange(40)])
        reached += rng.choice([0, 1, 5, 30])
        rows = [
            {
                "k": rng.choice(["ann", "bob", "eve", None, "skewed", "skewed", "skewed"]),
                "v": rng.choice([None, rng.randrange(-9, 100)]),
                "ts": None if rng.random() < 0.02 else at(reached - rng.randrange(40) / 2),
            }
            for _ in range(size)
        ]
        if rng.random() < 0.8:
            moved = reached - rng.choice([0, 5, 10])
            watermark = moved if watermark is None else max(moved, watermark)
        yield DisorderedEpoch(rows, watermark, previous)
        previous = watermark


def disturb(harness: Any, rng: random.Random, epoch: DisorderedEpoch) -> None:
    """Perhaps crash over the epoch's rows, rescale, restart or pause."""
    match rng.randrange(6):
        case 0:
            rng.shuffle(epoch.rows)
            harness.crash(epoch.table, watermark=None if epoch.watermark is None else at(epoch.watermark))
        case 1:
            harness.rescale(rng.randrange(1, 4))
        case 2:
            harness.restart()
        case 3:
            harness.pause()
