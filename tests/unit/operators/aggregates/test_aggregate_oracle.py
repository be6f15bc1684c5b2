"""All aggregates over many epochs, with crashes and rescaling, against DuckDB over all rows at once."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.support.operators.aggregate_oracle import (
    COLUMNS,
    aggregates,
    as_table,
    assert_same,
    expected_results,
    random_rows,
)

import lakestate as ls
from lakestate.errors import LakestateError
from lakestate.operators.aggregates import RunningAggregate
from lakestate.testing import OperatorHarness

SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 30))]


def running(**options: Any) -> RunningAggregate:
    operator: RunningAggregate = RunningAggregate.over(
        "user string", COLUMNS, time="ts", **options, **aggregates()
    )
    return operator


def disturb(rng: random.Random, harness: OperatorHarness, rows: Any) -> None:
    match rng.randrange(5):
        case 0:
            harness.crash(rows)
        case 1:
            harness.rescale(rng.randrange(1, 5))
        case 2:
            harness.restart()


@pytest.mark.parametrize("seed", SEEDS)
def test_all_aggregates_end_at_what_duckdb_says_of_all_rows(seed: int) -> None:
    rng = random.Random(seed)
    harness = OperatorHarness(running(), parallelism=rng.randrange(1, 4))
    seen: list[dict[str, Any]] = []
    newest: dict[str | None, dict[str, Any]] = {}
    for _ in range(rng.randrange(2, 8)):
        rows = random_rows(rng, rng.choice([0, 1, 5, 40]))
        disturb(rng, harness, as_table(rows))
        seen += rows
        newest |= {row["user"]: row for row in harness.epoch(as_table(rows))}
    assert_same(newest, expected_results(seen))


class Changes:
    """What a stream of changes says is there, applied row by row."""

    def __init__(self) -> None:
        self.rows: dict[str | None, dict[str, Any]] = {}

    def apply(self, yielded: list[dict[str, Any]]) -> None:
        for row in yielded:
            change = row.pop("_change")
            if change in ("delete", "update_preimage"):
                assert str(self.rows.pop(row["user"])) == str(row)
            else:
                assert row["user"] not in self.rows
                self.rows[row["user"]] = row


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_that_are_taken_back_leave_what_a_recomputation_finds(seed: int) -> None:
    rng = random.Random(seed)
    harness = OperatorHarness(running(retracts=True), parallelism=rng.randrange(1, 4))
    live: list[dict[str, Any]] = []
    changes = Changes()
    for number in range(rng.randrange(3, 9)):
        added = random_rows(rng, rng.choice([0, 1, 5, 40]))
        live += added
        gone = rng.sample(live, rng.choice([0, len(live) // 2, len(live)]) if number else 0)
        for row in gone:
            live.remove(row)
        signed = [row | {"_sign": 1} for row in added] + [row | {"_sign": -1} for row in gone]
        rng.shuffle(signed)
        rows = as_table(signed).append_column("_sign", [[row["_sign"] for row in signed]])
        disturb(rng, harness, rows)
        changes.apply(harness.epoch(rows))
        assert_same(changes.rows, expected_results(live))
    assert harness.rows("groups") or not live


def test_state_is_gone_when_all_rows_are_taken_back() -> None:
    harness = OperatorHarness(running(retracts=True), parallelism=2)
    rows = random_rows(random.Random(1), 50)
    harness.epoch(as_table(rows).append_column("_sign", [[1] * 50]))
    yielded = harness.epoch(as_table(rows).append_column("_sign", [[-1] * 50]))
    assert {row["_change"] for row in yielded} == {"delete"}
    tables = [each.name for each in running(retracts=True).tables().values()]
    assert {name: harness.rows(name) for name in tables} == {name: [] for name in tables}


@pytest.mark.parametrize(
    "aggregate", [ls.count(), ls.max("n"), ls.count_distinct("n")], ids=["rows", "values", "distinct"]
)
def test_taking_back_what_was_never_inserted_is_refused(aggregate: ls.Aggregate) -> None:
    harness = OperatorHarness(
        RunningAggregate.over("user string", "n bigint, _sign int", retracts=True, found=aggregate)
    )
    harness.epoch([{"user": "ann", "n": 1, "_sign": 1}])
    with pytest.raises(LakestateError, match="changes take back a row that they never inserted"):
        harness.epoch([{"user": "ann", "n": 2, "_sign": -1}, {"user": "ann", "n": 2, "_sign": -1}])
    with pytest.raises(LakestateError, match="does not say what it does: _change"):
        harness.epoch([{"user": "ann", "n": 2, "_sign": None}])
