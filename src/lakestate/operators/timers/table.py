"""`Timers`: a table of times at which an operator wants to be called, with the keys it is called for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.operators.timers.view import AT, TimersView
from lakestate.protocol.metadata import Column, TableFiles
from lakestate.tables.arrow.schema import arrow_fields, columns_of
from lakestate.tables.context import TableContext
from lakestate.tables.time_key.table import TimeKeyTable


class TimerTime(Enum):
    """The clock that timers follow."""

    EVENT = "event"
    """The watermark."""
    PROCESSING = "processing"
    """The time of day at which an epoch begins."""

    @classmethod
    def of(cls, time: TimerTime | str) -> TimerTime:
        """The clock of that name."""
        try:
            return cls(time)
        except ValueError:
            raise InvalidInputError(
                "timers follow no such time", found=repr(time), expected="'event' or 'processing'"
            ) from None


class Timers(TimeKeyTable):
    """Times at which an operator is called, by key.

    An operator sets timers for a whole batch, `self.timers.set(rows, at="deadline")`, and is given those
    that are due, `on_timer(rows, ctx)`: once the watermark has reached their time, or with
    `time="processing"` the time at which an epoch begins. A timer whose time has passed when it is set is
    due in the same epoch. `value` declares columns that come back with a timer.

    >>> import lakestate as ls
    >>> from lakestate.testing import OperatorHarness
    >>> class Remind(ls.Operator):
    ...     output = "user string, at timestamp"
    ...     timers = ls.Timers(key="user string")
    ...
    ...     def process_batch(self, batch, ctx):
    ...         self.timers.set(batch, at="due")
    ...
    ...     def on_timer(self, rows, ctx):
    ...         yield rows
    >>> from datetime import UTC, datetime
    >>> harness = OperatorHarness(Remind())
    >>> harness.epoch([{"user": "ann", "due": datetime(2026, 1, 1, tzinfo=UTC)}])
    []
    >>> [row["user"] for row in harness.epoch(watermark=datetime(2026, 1, 1, tzinfo=UTC))]
    ['ann']
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        key: str | pa.Schema,
        value: str | pa.Schema | None = None,
        time: TimerTime | str = TimerTime.EVENT,
        route_by: Sequence[str] | None = None,
    ) -> None:
        self.time = TimerTime.of(time)
        payload = () if value is None else columns_of(value, what="value")
        if any(column.name == AT for column in (*payload, *columns_of(key, what="key"))):
            raise InvalidInputError("timers hold their time in a column of this name", found=AT)
        columns = (Column(AT, "timestamp"), *payload)
        super().__init__(
            name,
            key=key,
            value=pa.schema(arrow_fields(columns)),
            time=AT,
            route_by=route_by,
            description=f"Timers in {self.time.value} time that have not fired.",
        )

    def open_view(self, files: TableFiles, context: TableContext) -> TimersView:
        """The timers that these files hold."""
        return TimersView(self.layout, files, context, self.upgrade)


def timers_of(tables: Mapping[str, Any]) -> dict[str, Timers]:
    """The timers among an operator's tables."""
    return {name: table for name, table in tables.items() if isinstance(table, Timers)}
