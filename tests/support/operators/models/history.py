"""What a model of an operator says of a history, and random rows to run operators with."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakestate.operators.operator import Operator
from lakestate.testing.operator_job import OperatorJob
from lakestate.testing.plugin import Left, Right, Seen, SeenEpoch, SurviveFaults, run_history
from lakestate.testing.simulation import BrokenPromiseError

Row = dict[str, Any]
START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 26
DELAY_S = 3
_FIRST = -(2**62)
_LAST = 2**62


@dataclass(frozen=True)
class Outcome:
    """Everything that was yielded, and what the tables hold."""

    output: list[Row]
    tables: dict[str, list[Row]]


@dataclass(frozen=True)
class Case:
    """An operator, the rows to run it with, and its model."""

    name: str
    make: Callable[[], Operator]
    model: Callable[[Seen], Outcome]
    rows: Callable[[random.Random], Sequence[Row]]
    event_time: str | tuple[str, str] = "ts"
    ignored: tuple[str, ...] = ()
    checks_state: bool = True

    def __str__(self) -> str:
        return self.name.replace(" ", "-")

    def run(self, seed: int) -> None:
        """Run one history, with rows of its own. A failure is reduced and reported."""
        rows, settings = self._given(seed)
        test = (
            f"tests/simulation/operators/test_operators.py::test_results_and_state_are_exact[{seed}-{self}]"
        )
        try:
            SurviveFaults(test, only=seed)(self.make, rows, **settings)
        except pytest.fail.Exception as failure:
            # Here the seed is part of the test's name.
            pytest.fail(str(failure).replace(f"--simulation-seed {seed}", "--full"), pytrace=False)

    def violation(self, seed: int) -> BrokenPromiseError | None:
        """What one history shows to be wrong."""
        rows, settings = self._given(seed)
        return run_history(seed, OperatorJob(self.make, rows, **settings)).violation

    def _given(self, seed: int) -> tuple[Sequence[Row], dict[str, Any]]:
        settings: dict[str, Any] = {
            "key": "k",
            "event_time": self.event_time,
            "delay": f"{DELAY_S} seconds",
            "output": lambda seen: self.model(seen).output,
            "ignored": self.ignored,
        }
        if self.checks_state:
            settings["state"] = lambda seen: self.model(seen).tables
        return self.rows(random.Random(seed)), settings


@dataclass(frozen=True)
class Step:
    """An epoch in microseconds: what the epoch before had passed, and what this one has."""

    epoch: SeenEpoch
    before_us: int

    @property
    def rows(self) -> list[Row]:
        return [dict(row) for row in self.epoch.rows]

    @property
    def now_us(self) -> int:
        """The watermark, also in the last epoch: what tables forget goes by it."""
        return _FIRST if self.epoch.watermark_us is None else self.epoch.watermark_us

    @property
    def closes_us(self) -> int:
        """What comes out at this time or before comes out: everything when the stream ends."""
        return _LAST if self.epoch.is_last else self.now_us


def steps(seen: Seen) -> Iterator[Step]:
    """The epochs in order."""
    before_us = _FIRST
    for epoch in seen.epochs:
        step = Step(epoch, before_us)
        yield step
        before_us = step.now_us


def us(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def at(time_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)


def total(values: Sequence[int | None]) -> int | None:
    """The sum as in SQL: null if there is nothing to add."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def timed_rows(rng: random.Random) -> list[Row]:
    """Rows out of order, some of them late, with nulls and equal times."""
    return [_row(rng, number) for number in range(ROWS)]


def rows_with_times(rng: random.Random) -> list[Row]:
    """The same, of which every one has a time."""
    return [row | {"ts": row["ts"] or START} for row in timed_rows(rng)]


def rows_in_panes(rng: random.Random) -> list[Row]:
    """Rows with the starts of windows of five seconds."""
    size_us = 5_000_000
    rows = timed_rows(rng)
    return [
        row | {"_pane": None if row["ts"] is None else us(row["ts"]) // size_us * size_us} for row in rows
    ]


def signed_rows(rng: random.Random) -> list[Row]:
    """Rows that count, and rows that take back one before them."""
    live: list[Row] = []
    found: list[Row] = []
    for row in rows_with_times(rng):
        if live and rng.random() < 0.4:
            found.append(live.pop(rng.randrange(len(live))) | {"ts": row["ts"], "_sign": -1})
        else:
            live.append(row)
            found.append(row | {"_sign": 1})
    return found


def two_streams(rng: random.Random) -> list[Row]:
    """Left and right rows in any order. Their numbers tell them apart."""
    found: list[Row] = []
    for number in range(ROWS):
        row = _row(rng, number)
        key = rng.choice([None, 1, 1, 2, 2, 3]) if number > 1 else 1
        if number == 0 or (number > 1 and rng.random() < 0.5):
            found.append(Left(k=key, a=number, ts=row["ts"]))
        else:
            found.append(Right(k=key, b=number, at=row["ts"]))
    return found


def _row(rng: random.Random, number: int) -> Row:
    late_s = rng.choice([0, 0, 1, 2, 2.5, 8])
    return {
        "k": rng.choice(["ann", "bob", "skewed", "skewed", None]),
        "v": rng.choice([None, rng.randrange(9)]),
        "ts": None if number > 2 and rng.random() < 0.03 else START + timedelta(seconds=number - late_s),
        "id": number,
    }
