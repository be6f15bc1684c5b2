"""`UpdatingWindows`: aggregates by key and window, of which every epoch yields what changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lakestate.operators.aggregates.changes import change_rows
from lakestate.operators.aggregates.plan import changed_rows
from lakestate.operators.context import OperatorContext
from lakestate.operators.windows.panes import PANE, WINDOW_END, WINDOW_START, PaneOperator
from lakestate.operators.windows.specs import Hopping, Tumbling, window_name
from lakestate.protocol.metadata import Column
from lakestate.row_kind import Emit
from lakestate.tables.arrow.columns import beside
from lakestate.tables.arrow.schema import arrow_fields
from lakestate.tables.keyed.table import KeyedTable, Ttl


class UpdatingWindows(PaneOperator):
    """Yields the results of windows with new rows, or what changed of them.

    A window that closes yields nothing more: its last results are final. Its state expires.

    >>> import lakestate as ls
    >>> from datetime import UTC, datetime
    >>> from lakestate.testing import OperatorHarness
    >>> counts = UpdatingWindows.over("user string", "ts timestamp", ls.Tumbling("10 seconds"),
    ...                               emit="updates", n=ls.count())
    >>> harness = OperatorHarness(counts)
    >>> rows = [{"user": "ann", "ts": datetime(2026, 1, 1, tzinfo=UTC)}]
    >>> harness.epoch(rows)[0]["n"], harness.epoch(rows)[0]["n"]
    (1, 2)
    """

    def on_epoch_end(self, ctx: OperatorContext) -> Iterator[pa.Table]:
        """Merge the rows into their windows, and yield what changed."""
        rows = self._take_rows(ctx)
        if rows is None or not rows.num_rows:
            return
        rows = self._by_window(rows, ctx)
        keys = rows.select([*self._key, WINDOW_START])
        windows = ctx.view("windows")
        was, found = windows.lookup(keys)
        before = pa.Table.from_batches([found])
        after = self._plan.merge_aligned(before, rows)
        ends = self._timestamps(keys[WINDOW_START].cast(pa.int64()).to_numpy() + self._grid.size_us)
        windows.put(
            pa.table(
                [*keys.columns, ends, *after.columns],
                names=[*keys.column_names, WINDOW_END, *after.column_names],
            )
        )
        yield from self._yield_results(keys, before, after, was)

    def _yield_results(
        self, keys: pa.Table, before: pa.Table, after: pa.Table, was: pa.Array
    ) -> Iterator[pa.Table]:
        new = self._shown(beside(keys, after))
        if self._emit is not Emit.CHANGES:
            yield new
            return
        old = self._shown(beside(keys, before.select(after.column_names)))
        there = pa.array(np.ones(keys.num_rows, dtype=bool))
        yield change_rows(old, new, was, there, changed_rows(self._plan, old, new))

    def _by_window(self, rows: pa.Table, ctx: OperatorContext) -> pa.Table:
        """Accumulators by key and window, of windows that were open when the epoch before ended."""
        places, starts = self._grid.windows_of(rows[PANE].to_numpy())
        if ctx.previous_watermark_us is not None:
            is_open = starts + self._grid.size_us + self._lateness_us > ctx.previous_watermark_us
            places, starts = places[is_open], starts[is_open]
        taken = rows.drop_columns(PANE).take(pa.array(places))
        taken = taken.append_column(WINDOW_START, self._timestamps(starts))
        return self._plan.merge(taken, [*self._key, WINDOW_START])

    def _declare_state(self, key: Sequence[Column], window: Tumbling | Hopping, time_type: str) -> None:
        self.windows = KeyedTable(
            f"windows_{window_name(window, self._lateness_us)}",
            key=pa.schema(arrow_fields((*key, Column(WINDOW_START, time_type)))),
            value=pa.schema(arrow_fields((Column(WINDOW_END, time_type), *self._plan.state))),
            route_by=[column.name for column in key],
            ttl=Ttl(f"{self._lateness_us} us", WINDOW_END),
            meanings=self._plan.meanings,
            description="The accumulators of every key and open window.",
        )
