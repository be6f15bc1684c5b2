"""The pytest plugin with operators that commit output of their own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.simulation.test_plugin import ROWS, totals
from tests.support.spark.totals import Totals

import lakestate as ls
from lakestate.errors import InvalidInputError, OperatorError
from lakestate.testing.plugin import SurviveFaults, Target, survive_faults  # noqa: F401 - a fixture


class Ledger:
    """A target that adds up amounts, and knows its newest epoch."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.epoch = 0
        self.amounts: dict[str, float] = {}

    def read(self) -> list[dict[str, Any]]:
        return [{"user": user, "amount": amount} for user, amount in self.amounts.items()]

    def add(self, commit: ls.OperatorCommit) -> None:
        if self.epoch < commit.epoch:
            self.epoch = commit.epoch
            self.add_all(commit)

    def add_all(self, commit: ls.OperatorCommit) -> None:
        for user, amount in (row for data in commit.data for row in json.loads(data)):
            self.amounts[user] = self.amounts.get(user, 0.0) + amount

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        return self


class Posts(ls.Operator):
    outbox = ls.GlobalKeyedTable(key=str, value=int, two_phase_commit=True)

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.rows: list[Any] = []

    def process_batch(self, batch, ctx):
        self.rows += [[row["user"], row["amount"]] for row in batch.to_pylist()]
        self.outbox.set_commit_data(json.dumps(self.rows).encode())

    def on_commit(self, commit):
        self.ledger.add(commit)


class Careless(Posts):
    def on_commit(self, commit):
        self.ledger.add_all(commit)


def amounts(seen):
    rows = seen.rows
    users = {row["user"] for row in rows}
    return [{"user": user, "amount": sum(r["amount"] for r in rows if r["user"] == user)} for user in users]


def target_of(ledger: Ledger) -> Target:
    return Target(ledger.clear, ledger.read, amounts)


def test_output_that_an_operator_commits_itself_survives(survive_faults: SurviveFaults) -> None:  # noqa: F811
    ledger = Ledger()
    survive_faults(lambda: Posts(ledger), ROWS, key="user", target=target_of(ledger), seeds=15)


def test_a_target_that_does_not_compare_epochs_is_found_out(survive_faults: SurviveFaults) -> None:  # noqa: F811
    ledger = Ledger()
    with pytest.raises(
        pytest.fail.Exception, match="a target that compares epochs has every row exactly once"
    ):
        survive_faults(lambda: Careless(ledger), ROWS, key="user", target=target_of(ledger), seeds=60)


def test_an_on_commit_that_always_raises_is_shown_with_its_error(survive_faults: SurviveFaults) -> None:  # noqa: F811
    class Broken(Posts):
        def on_commit(self, commit):
            raise LookupError("no such table")

    ledger = Ledger()
    with pytest.raises(OperatorError, match="on_commit raised LookupError") as failure:
        survive_faults(lambda: Broken(ledger), ROWS, key="user", target=target_of(ledger), seeds=2)
    assert isinstance(failure.value.__cause__, LookupError)


def test_on_commit_and_a_target_come_together(survive_faults: SurviveFaults) -> None:  # noqa: F811
    ledger = Ledger()
    with pytest.raises(InvalidInputError, match="needs a target that each history finds empty: Posts"):
        survive_faults(lambda: Posts(ledger), ROWS, key="user", output=amounts)
    with pytest.raises(InvalidInputError, match="a target for an operator without on_commit: Totals"):
        survive_faults(Totals, ROWS, state=totals, target=target_of(ledger))
