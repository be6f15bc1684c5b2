"""Deduplication and top-N over random epochs, against the same question asked of all rows at once."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lakestate as ls
from lakestate.operators.selection import (
    FirstRows,
    FirstRowsForEver,
    NewestRows,
    SettledRows,
    TopRows,
    WindowTop,
)
from lakestate.row_kind import AFTER, CHANGE, INSERT
from lakestate.testing import OperatorHarness

KEY = "id bigint, side string"
COLUMNS = "name string, price double, ts timestamp, tags array<int>, n int"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("side", pa.string()),
        ("name", pa.string()),
        ("price", pa.float64()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.field("element", pa.int32()))),
        ("n", pa.int32()),
    ]
)
SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 6))]
WITHIN_US = 60
ROW = "name NULLS FIRST, price NULLS FIRST, ts, tags::VARCHAR NULLS FIRST, n"
ROW_DESC = "name DESC NULLS LAST, price DESC NULLS LAST, ts DESC, tags::VARCHAR DESC NULLS LAST, n DESC"

Row = dict[str, Any]


class Epochs:
    """Random rows in epochs, out of order, with crashes, restarts and other parallelisms in between.

    Times of an epoch are about 100 after those of the epoch before. Rows behind the watermark of the epoch
    before come only with `late`.
    """

    def __init__(self, seed: int, operator: Any, *, late: bool = False, pane_us: int = 0) -> None:
        self.choose = random.Random(seed)
        self.harness = OperatorHarness(operator, parallelism=2)
        self.pane_us = pane_us
        self.inputs: list[list[Row]] = []
        self.outputs: list[list[Row]] = []
        previous = -1000
        for number in range(self.choose.randrange(3, 9)):
            first = -1000 if late else previous
            rows = [self.row(number, first) for _ in range(self.choose.choice([0, 1, 8, 40]))]
            self.interrupt(rows)
            watermark = number * 100 - 50
            shuffled = with_panes(self.choose.sample(rows, len(rows)), pane_us)
            self.inputs.append(rows)
            self.outputs.append(self.harness.epoch(shuffled, watermark=watermark))
            previous = watermark

    def row(self, number: int, first: int) -> Row:
        choose = self.choose
        return {
            "id": choose.choice([None, 1, 2]),
            "side": choose.choice([None, "a"]),
            "name": choose.choice([None, "", "x", "ü"]),
            "price": choose.choice([None, -0.5, 0.0, 1.5, float("nan"), float("inf"), choose.random()]),
            "ts": max(first, number * 100 + choose.randrange(-100, 100)),
            "tags": choose.choice([None, [], [1], [2, None]]),
            "n": choose.randrange(100),
        }

    def interrupt(self, rows: list[Row]) -> None:
        match self.choose.randrange(6):
            case 0:
                self.harness.crash(with_panes(rows[:3], self.pane_us))
            case 1:
                self.harness.rescale(self.choose.randrange(1, 5))
            case 2:
                self.harness.restart()

    @property
    def output(self) -> list[Row]:
        return [row for rows in self.outputs for row in rows]

    def ask(self, sql: str) -> list[Row]:
        """The answer of DuckDB over all rows."""
        return ask([row for rows in self.inputs for row in rows], sql)


def with_panes(rows: list[Row], pane_us: int) -> pa.Table:
    """Rows, with the start of their pane if the operator needs it."""
    table = pa.Table.from_pylist(rows, SCHEMA)
    if not pane_us:
        return table
    return table.append_column(
        "_pane", pa.array([row["ts"] // pane_us * pane_us for row in rows], pa.int64())
    )


def ask(rows: list[Row], sql: str) -> list[Row]:
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.register("rows", pa.Table.from_pylist(rows, SCHEMA))
        found: list[Row] = db.sql(sql).to_arrow_table().to_pylist()
    return found


def texts(rows: list[Row]) -> list[str]:
    """Rows to compare: NaN is not equal to itself."""
    return sorted(map(str, rows))


def last_by(rows: list[Row], *key: str) -> list[Row]:
    return list({tuple(row[name] for name in key): row for row in rows}.values())


def apply_changes(rows: list[Row]) -> list[str]:
    """What is there after all changes. Only what is there can be taken away."""
    there: list[str] = []
    for row in rows:
        plain = str({name: value for name, value in row.items() if name != CHANGE})
        there.append(plain) if row[CHANGE] in (INSERT, AFTER) else there.remove(plain)
    return sorted(there)


def first_rows(epochs: Epochs, within_us: int) -> list[Row]:
    """The rows that no row of their key, taken before, is near to: epoch by epoch, each in order."""
    kept: list[Row] = []
    for rows in epochs.inputs:
        for row in ask(rows, f"SELECT *, epoch_us(ts) AS us FROM rows ORDER BY ts, {ROW}"):
            key = row["id"], row["side"]
            near = [
                each
                for each in kept
                if (each["id"], each["side"]) == key and abs(each["us"] - row["us"]) <= within_us
            ]
            kept += [] if near else [row]
    return [{name: row[name] for name in SCHEMA.names} for row in kept]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_first_row_of_each_key_is_passed_on(seed: int) -> None:
    epochs = Epochs(seed, FirstRowsForEver.over(KEY, COLUMNS, time="ts"), late=True)
    assert texts(epochs.output) == texts(first_rows(epochs, 10**6))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("within_us", [0, 7, WITHIN_US, 1000])
def test_a_row_is_passed_on_if_no_other_is_within_the_time(seed: int, within_us: int) -> None:
    epochs = Epochs(seed, FirstRows.over(KEY, COLUMNS, time="ts", within=f"{within_us} us"))
    assert texts(epochs.output) == texts(first_rows(epochs, within_us))
    keys_left = [row["first_seen"].microsecond for row in epochs.harness.rows("seen")]
    assert all(time >= len(epochs.inputs) * 100 - 150 - within_us for time in keys_left)


NEWEST = (
    f"SELECT * FROM rows QUALIFY row_number() OVER (PARTITION BY id, side ORDER BY ts DESC, {ROW_DESC}) = 1"
)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("within", [None, "60 us"])
def test_updates_end_at_the_newest_row_of_each_key(seed: int, within: str | None) -> None:
    operator = NewestRows.over(KEY, COLUMNS, time="ts", within=within)
    epochs = Epochs(seed, operator, late=within is None)
    assert texts(last_by(epochs.output, "id", "side")) == texts(epochs.ask(NEWEST))
    if within is None:
        assert texts(epochs.harness.rows("newest")) == texts(epochs.ask(NEWEST))


@pytest.mark.parametrize("seed", SEEDS)
def test_changes_of_newest_rows_take_back_what_they_replace(seed: int) -> None:
    epochs = Epochs(seed, NewestRows.over(KEY, COLUMNS, time="ts", emit="changes"), late=True)
    assert apply_changes(epochs.output) == texts(epochs.ask(NEWEST))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("within_us", [0, 7, WITHIN_US, 250])
def test_the_last_row_of_a_key_comes_out_once_no_other_can_follow(seed: int, within_us: int) -> None:
    epochs = Epochs(seed, SettledRows.over(KEY, COLUMNS, time="ts", within=f"{within_us} us"))
    following = f"lead(epoch_us(ts)) OVER (PARTITION BY id, side ORDER BY ts, {ROW})"
    last = f"SELECT * FROM rows QUALIFY coalesce({following} - epoch_us(ts) > {within_us}, true)"
    watermark = (len(epochs.inputs) - 1) * 100 - 50
    settled = [row for row in epochs.ask(last) if row["ts"] < micros(watermark - within_us)]
    assert texts(epochs.output) == texts(settled)
    assert all(row["ts"] >= micros(watermark - within_us) for row in epochs.harness.rows("pending"))
    assert texts(epochs.output + epochs.harness.drain()) == texts(epochs.ask(last))
    assert epochs.harness.rows("pending") == []


ORDERS = {
    "price desc, ts": "price DESC NULLS LAST, ts NULLS LAST",
    "name nulls first, price": "name NULLS FIRST, price NULLS LAST",
    "n desc nulls first": "n DESC NULLS FIRST",
    "name desc": "name DESC NULLS LAST",
}


def top_sql(by: str, n: int) -> str:
    rank = f"row_number() OVER (PARTITION BY id, side ORDER BY {ORDERS[by]}, {ROW})"
    return f"SELECT *, ({rank})::INTEGER AS rank FROM rows QUALIFY rank <= {n}"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("by", ORDERS)
def test_updates_end_at_the_best_rows_of_each_key(seed: int, by: str) -> None:
    n = 1 + seed % 4
    epochs = Epochs(seed, TopRows.over(KEY, COLUMNS, n=n, by=by), late=True)
    expected = texts(epochs.ask(top_sql(by, n)))
    assert texts(last_by(epochs.output, "id", "side", "rank")) == expected
    assert len(epochs.harness.rows("best")) == len(expected)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("by", ORDERS)
def test_changes_of_ranks_take_back_what_they_replace(seed: int, by: str) -> None:
    epochs = Epochs(seed, TopRows.over(KEY, COLUMNS, n=3, by=by, emit="changes"), late=True)
    assert apply_changes(epochs.output) == texts(epochs.ask(top_sql(by, 3)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("by", ORDERS)
def test_all_rows_that_are_tied_with_the_last_one_are_there(seed: int, by: str) -> None:
    epochs = Epochs(seed, TopRows.over(KEY, COLUMNS, n=2, by=by, ties="all", emit="changes"), late=True)
    window = f"OVER (PARTITION BY id, side ORDER BY {ORDERS[by]}"
    expected = epochs.ask(
        f"SELECT *, (rank() {window}))::INTEGER AS rank, "
        f"(row_number() {window}, {ROW}))::INTEGER AS place FROM rows QUALIFY rank <= 2"
    )
    assert apply_changes(epochs.output) == texts(expected)
    assert len(epochs.harness.rows("best")) == len(expected)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ties", ["break", "all"])
@pytest.mark.parametrize(("size", "hop", "lateness"), [(60, 60, 0), (60, 20, 0), (50, 20, 40)])
def test_the_best_rows_of_each_window_come_out_once(
    seed: int, ties: str, size: int, hop: int, lateness: int
) -> None:
    window = ls.Hopping(f"{size} us", every=f"{hop} us")
    options: dict[str, Any] = {"n": 2, "by": "price desc", "ties": ties, "allowed_lateness": f"{lateness} us"}
    epochs = Epochs(seed, WindowTop.over(KEY, COLUMNS, window, **options), pane_us=window.grid.pane_us)
    order = "OVER (PARTITION BY id, side, start ORDER BY price DESC NULLS LAST"
    rank = f"row_number() {order}, {ROW})" if ties == "break" else f"rank() {order})"
    place = "" if ties == "break" else f", (row_number() {order}, {ROW}))::INTEGER AS place"
    windows = f"range((epoch_us(ts) // {hop} - {size // hop + 1}) * {hop}, epoch_us(ts) + 1, {hop})"
    expected = epochs.ask(
        f"SELECT id, side, name, price, ts, tags, n, make_timestamptz(start) AS window_start, "
        f"make_timestamptz(start + {size}) AS window_end, ({rank})::INTEGER AS rank{place} "
        f"FROM (SELECT *, unnest({windows}) AS start FROM rows) "
        f"WHERE start <= epoch_us(ts) AND start + {size} > epoch_us(ts) QUALIFY rank <= 2"
    )
    watermark = (len(epochs.inputs) - 1) * 100 - 50
    closed = [row for row in expected if row["window_end"] <= micros(watermark - lateness)]
    assert texts(epochs.output) == texts(closed)
    assert len(epochs.harness.rows(epochs.harness._operator.candidates.name)) <= 40 * 6 * -(-size // hop)
    assert texts(epochs.output + epochs.harness.drain()) == texts(expected)
    assert epochs.harness.rows(epochs.harness._operator.candidates.name) == []


def micros(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
