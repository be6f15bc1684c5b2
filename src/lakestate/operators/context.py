"""Where and when operator code runs, and how it reaches its state."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from lakestate.coordinator.epoch_plan import EpochTimes
from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.protocol.values import Epoch, TaskInfo
from lakestate.protocol.watermarks import instant
from lakestate.tables.contract import Table
from lakestate.tables.manager import TableManager


class OperatorContext:
    """One subtask of an operator in one epoch.

    A state table's view is an attribute named like the table: `ctx.totals`. Times are the same for all
    subtasks and all rows of the epoch. The watermark comes from the rows of earlier epochs.
    """

    def __init__(
        self,
        task: TaskInfo,
        epoch: Epoch,
        times: EpochTimes,
        tables: TableManager,
        declared: dict[str, Table],
    ) -> None:
        self.task = task
        self.epoch = epoch
        self.watermark_us = times.watermark_us
        self.previous_watermark_us = times.previous_watermark_us
        self.processing_time_us = times.processing_time_us
        self.is_last = times.is_last
        """Whether the stream has ended: no epoch follows, and `on_close` is called."""
        self.due_us: int | None = None
        """The earliest time for which `wake_at` was called."""
        self._tables = tables
        self._declared = declared

    @property
    def watermark(self) -> datetime | None:
        """The watermark in UTC, or None if there is none yet."""
        return None if self.watermark_us is None else instant(self.watermark_us)

    @property
    def previous_watermark(self) -> datetime | None:
        """The watermark of the epoch before in UTC, or None. What is not older than this is still open."""
        return None if self.previous_watermark_us is None else instant(self.previous_watermark_us)

    @property
    def processing_time(self) -> datetime:
        """The time at which the epoch began, in UTC. It never decreases from epoch to epoch."""
        return instant(self.processing_time_us)

    def wake_at(self, time_us: int) -> None:
        """Ask for an epoch at this processing time or soon after, even if there are no rows by then.

        The request is for the next epoch alone: repeat it in every epoch until its time has come. Several
        calls ask for the earliest of their times.
        """
        if type(time_us) is not int:
            raise InvalidInputError(
                "wake_at takes microseconds since 1970", found=repr(time_us), expected="an int"
            )
        self.due_us = time_us if self.due_us is None else min(self.due_us, time_us)

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
