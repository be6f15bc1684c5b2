"""`Ledger`: the target of the simulator's own job, with one transaction for each call of `on_commit`."""

from __future__ import annotations

import json
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
