"""`ProcessingTimeWindows`: aggregates by key and window of the time at which epochs begin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from lakestate.operators.context import OperatorContext
from lakestate.operators.windows.panes import PANE, WINDOW_START, PaneOperator
from lakestate.operators.windows.specs import Hopping, Tumbling, window_name
from lakestate.protocol.metadata import Column
from lakestate.tables.arrow.schema import arrow_fields
from lakestate.tables.time_key.table import TimeKeyTable
from lakestate.tables.time_key.view import TimeKeyView


class ProcessingTimeWindows(PaneOperator):
    """Yields a window in the first epoch that begins at its end or later.

    All rows of an epoch are in the same windows. No row is late.

    >>> import lakestate as ls
    >>> from datetime import UTC, datetime
    >>> from lakestate.testing import OperatorHarness
    >>> window = ls.Tumbling("10 seconds", time="processing")
    >>> harness = OperatorHarness(ProcessingTimeWindows.over("user string", "", window, n=ls.count()))
    >>> def at(second): return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
    >>> harness.epoch([{"user": "ann"}, {"user": "ann"}], processing_time=at(7))
    []
    >>> rows = harness.epoch([{"user": "ann"}], processing_time=at(10))
    >>> [(row["window_end"].second, row["n"]) for row in rows]
    [(10, 2)]
    """

    follows_processing_time: ClassVar[bool] = True

    def on_epoch_end(self, ctx: OperatorContext) -> Iterator[pa.Table]:
        """Append the rows to the windows of this epoch, and yield those that have ended."""
        windows: TimeKeyView = ctx.view("windows")
        rows = self._take_rows(ctx)
        if rows is not None:
            _, starts = self._grid.windows_of(rows[PANE].to_numpy()[:1])
            for start in starts:
                windows.insert(self._in_window(rows, start))
        first_open_us = self._grid.first_open_us(ctx.processing_time_us)
        found = windows.rows_between(None, None if ctx.is_last else first_open_us)
        if found.num_rows:
            yield self._shown(self._plan.merge(found, [*self._key, WINDOW_START]))
            if ctx.is_last:
                windows.delete(found.select(self._key))
            else:
                windows.expire(first_open_us)
        if (earliest_us := windows.min_time()) is not None:
            ctx.wake_at(earliest_us + self._grid.size_us)

    def _in_window(self, rows: pa.Table, start: int) -> pa.Table:
        starts = self._timestamps(np.full(rows.num_rows, start))
        return rows.set_column(rows.schema.get_field_index(PANE), WINDOW_START, starts)

    def _with_panes(self, rows: pa.Table, ctx: OperatorContext) -> pa.Table:
        """The rows with the pane in which the epoch began."""
        (pane,) = self._grid.panes(np.array([ctx.processing_time_us]))
        panes = pa.array(np.full(rows.num_rows, pane))
        if PANE in rows.column_names:
            return rows.set_column(rows.schema.get_field_index(PANE), PANE, panes)
        return rows.append_column(PANE, panes)

    def _without_late(self, rows: pa.Table, ctx: OperatorContext) -> pa.Table:
        """All rows."""
        return rows

    def _declare_state(self, key: Sequence[Column], window: Tumbling | Hopping, time_type: str) -> None:
        # The time of day at which rows came is no event time, which a following window would need.
        self.output_time = None
        self.windows = TimeKeyTable(
            f"windows_{window_name(window, 0)}",
            key=pa.schema(arrow_fields(key)),
            value=pa.schema(arrow_fields((Column(WINDOW_START, time_type), *self._plan.state))),
            time=WINDOW_START,
            meanings=self._plan.meanings,
            description="The accumulators of every key by open window, several of an epoch each.",
        )
