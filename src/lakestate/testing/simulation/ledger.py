"""The targets of the simulator, with transactions: one of `on_commit`, and one of a sink that delivers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lakestate.coordinator.commit import OperatorCommit


class Ledger:
    """Rows that only grow, and the newest epoch among them: a call that counts twice doubles its rows."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.epoch = 0

    def add(self, commit: OperatorCommit) -> None:
        """Add the rows of an epoch, unless they are known: a call may come again, and an old one late."""
        if self.epoch >= commit.epoch:
            return
        self.rows += [row for data in commit.data for row in json.loads(data)["rows"]]
        self.epoch = commit.epoch

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        """Itself: all copies of an operator write to the same target."""
        return self


class DeliveryTarget:
    """A table with a marker: the newest epoch whose rows it holds. Both change in one transaction."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.epoch = 0

    def transact(self, epoch: int, rows: Sequence[dict[str, Any]]) -> bool:
        """Add the rows of an epoch, unless it or a later one is there. False if nothing was changed."""
        if self.epoch >= epoch:
            return False
        self.rows += rows
        self.epoch = epoch
        return True
