"""`WindowAggregate`: aggregates by key and window, yielded once, when a window can no longer change.

Until then nothing is read: the accumulators of an epoch are appended to a table by the start of their pane. A
window that closes reads its panes and merges them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import ClassVar

import numpy as np
import pyarrow as pa

from lakestate.operators.context import OperatorContext
from lakestate.operators.windows.grid import WindowRange
from lakestate.operators.windows.intervals import number_keys
from lakestate.operators.windows.panes import PANE, WINDOW_START, PaneOperator
from lakestate.operators.windows.specs import Hopping, Tumbling, window_name
from lakestate.protocol.metadata import Column
from lakestate.tables.arrow.schema import arrow_fields
from lakestate.tables.time_key.table import TimeKeyTable
from lakestate.tables.time_key.view import TimeKeyView

_KEY = "_key"
EXPANDED_ROWS_MAX = 4_000_000
"""How many rows the panes of overlapping windows become at a time."""


class WindowAggregate(PaneOperator):
    """Aggregates by key and window of event time, yielded when the watermark passes the end of the window.

    >>> import lakestate as ls
    >>> from datetime import UTC, datetime
    >>> from lakestate.testing import OperatorHarness
    >>> spent = WindowAggregate.over("user string", "price bigint, ts timestamp", ls.Tumbling("10 seconds"),
    ...                              n=ls.count(), spend=ls.sum("price"))
    >>> harness = OperatorHarness(spent)
    >>> def at(second): return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
    >>> harness.epoch([{"user": "ann", "price": 3, "ts": at(1)}, {"user": "ann", "price": 4, "ts": at(9)}])
    []
    >>> [(row["window_end"].second, row["n"], row["spend"]) for row in harness.epoch(watermark=at(10))]
    [(10, 2, 7)]
    """

    follows_time: ClassVar[bool | None] = True

    def on_epoch_end(self, ctx: OperatorContext) -> Iterator[pa.Table]:
        """Append the rows to their panes, and yield the windows that close."""
        panes: TimeKeyView = ctx.view("panes")
        rows = self._take_rows(ctx)
        if rows is not None and rows.num_rows:
            starts = self._timestamps(rows[PANE].to_numpy())
            panes.insert(rows.set_column(rows.schema.get_field_index(PANE), "pane_start", starts))
        closing = self._closing(ctx, panes)
        if closing.is_empty:
            return
        found = panes.rows_between(*self._grid.panes_between(closing))
        if found.num_rows:
            yield from self._results(found, closing)
        self._forget(ctx, panes, found)

    def _closing(self, ctx: OperatorContext, panes: TimeKeyView) -> WindowRange:
        """The windows that close in this epoch: what the epoch before had closed does not come out again."""
        before_us, now_us = ctx.previous_watermark_us, ctx.watermark_us
        if now_us is None and not ctx.is_last:
            return WindowRange(0, 0)
        return self._grid.closed_between(
            None if before_us is None else before_us - self._lateness_us,
            None if ctx.is_last or now_us is None else now_us - self._lateness_us,
        )

    def _forget(self, ctx: OperatorContext, panes: TimeKeyView, found: pa.Table) -> None:
        """Remove what came out because the stream has ended. Everything else expires."""
        if ctx.is_last and found.num_rows:
            panes.delete(found.select(self._key))

    def _results(self, panes: pa.Table, closing: WindowRange) -> Iterator[pa.Table]:
        """Merge panes into windows, some windows at a time."""
        if self._grid.is_tumbling:
            groups = panes.rename_columns({"pane_start": WINDOW_START})
            yield self._shown(self._plan.merge(groups, [*self._key, WINDOW_START]))
            return
        # Numbers are grouped several times as fast as texts.
        keys, ids = number_keys(panes.select(self._key))
        panes = panes.drop_columns(self._key).append_column(_KEY, pa.array(ids))
        panes = self._plan.merge(panes, [_KEY, "pane_start"])
        places, starts = self._grid.windows_of(panes["pane_start"].cast(pa.int64()).to_numpy())
        closes = closing.contains(starts)
        places, starts = places[closes], starts[closes]
        order = np.argsort(starts, kind="stable")
        for part in _parts(starts[order], EXPANDED_ROWS_MAX):
            rows = panes.take(pa.array(places[order[part]])).drop_columns("pane_start")
            groups = rows.append_column(WINDOW_START, self._timestamps(starts[order[part]]))
            groups = self._plan.merge(groups, [_KEY, WINDOW_START])
            found = keys.take(groups[_KEY])
            yield self._shown(
                pa.table([*found.columns, *groups.columns], names=[*self._key, *groups.column_names])
            )

    def _declare_state(self, key: Sequence[Column], window: Tumbling | Hopping, time_type: str) -> None:
        self.panes = TimeKeyTable(
            f"panes_{window_name(window, self._lateness_us)}",
            key=pa.schema(arrow_fields(key)),
            value=pa.schema(arrow_fields((Column("pane_start", time_type), *self._plan.state))),
            time="pane_start",
            retention=self._retention(),
            meanings=self._plan.meanings,
            description="The accumulators of every key by pane, several of an epoch each, until it is in no "
            "open window.",
        )

    def _retention(self) -> timedelta | None:
        """A pane that starts at p is in no open window from p + size + lateness on."""
        return timedelta(microseconds=self._grid.size_us + self._lateness_us - 1)


def _parts(starts: np.ndarray, rows_max: int) -> Iterator[slice]:
    """Slices of sorted window starts of at most so many rows, or of one window, that divide no window."""
    first = 0
    while first < len(starts):
        last = min(first + rows_max, len(starts))
        if last < len(starts):
            whole = int(np.searchsorted(starts, starts[last]))
            last = whole if whole > first else int(np.searchsorted(starts, starts[first], side="right"))
        yield slice(first, last)
        first = last
