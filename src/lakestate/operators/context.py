"""Where and when operator code runs, and how it reaches its state."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from lakestate.errors import NotFoundError
from lakestate.protocol.values import Epoch, TaskInfo
from lakestate.protocol.watermarks import instant
from lakestate.tables.contract import Table
from lakestate.tables.manager import TableManager


class OperatorContext:
    """One subtask of an operator in one epoch.

    A state table's view is an attribute named like the table: `ctx.totals`. The watermark is the
    same for all subtasks and all rows of the epoch; it comes from the rows of earlier epochs.
    """

    def __init__(
        self,
        task: TaskInfo,
        epoch: Epoch,
        watermark_us: int | None,
        tables: TableManager,
        declared: dict[str, Table],
    ) -> None:
        self.task = task
        self.epoch = epoch
        self.watermark_us = watermark_us
        self._tables = tables
        self._declared = declared

    @property
    def watermark(self) -> datetime | None:
        """The watermark in UTC, or None if there is none yet."""
        return None if self.watermark_us is None else instant(self.watermark_us)

    def view(self, name: str) -> Any:
        """The view of the table with that attribute name."""
        table = self._declared.get(name)
        if table is None:
            raise NotFoundError(
                f"operator {self.task.operator_id} has no such table",
                object_name=name,
                found=", ".join(sorted(self._declared)) or "no table",
            )
        return self._tables.view(table.name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._declared:
            raise AttributeError(f"the context has no attribute and the operator no table {name!r}")
        return self.view(name)

    def __repr__(self) -> str:
        return f"OperatorContext({self.task}, epoch {self.epoch}, watermark {self.watermark})"
