"""`WindowTop`: the n first rows of each key and window, yielded once, when the window can no longer change.

Until then nothing is read: the best rows of an epoch are appended to a table by the start of their window. A
window that closes reads them and keeps the best of all epochs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from lakestate.config import duration_us
from lakestate.errors import InvalidInputError, OperatorError
from lakestate.operators.context import OperatorContext
from lakestate.operators.operator import Operator
from lakestate.operators.selection.codes import Codes, group_codes
from lakestate.operators.selection.order_by import check_sortable, parse_order
from lakestate.operators.selection.row_columns import RowColumns, whole_table
from lakestate.operators.selection.top import Ranked, Ranking, Ties, rank_columns, with_ranks
from lakestate.operators.windows.grid import WindowRange
from lakestate.operators.windows.panes import OUTPUT_TIME, PANE, WINDOW_END, WINDOW_START
from lakestate.operators.windows.specs import Hopping, Tumbling, window_name
from lakestate.protocol.metadata import Column
from lakestate.tables.arrow.columns import whole_column
from lakestate.tables.arrow.schema import arrow_fields, arrow_type
from lakestate.tables.time_key.table import TimeKeyTable


class WindowTop(Operator):
    """Yields the n first rows of each key and window of event time when the watermark passes its end.

    Rows have the start of their pane in the column `_pane`, in microseconds. If they are `spread`, it is that
    of their window, and a row is there for each of its windows.

    Rows that come from a window before have `window_start` and `window_end` already, and keep them. Both
    windows must then end at the same time.
    """

    follows_time: ClassVar[bool | None] = True

    def __init__(
        self,
        rows: RowColumns,
        ranking: Ranking,
        window: Tumbling | Hopping,
        *,
        lateness_us: int = 0,
        time_type: str = "timestamp",
        spread: bool = False,
    ) -> None:
        self._columns = rows
        self._ranking = ranking
        self._grid = window.grid
        self._lateness_us = lateness_us
        self._spread = spread or self._grid.is_tumbling
        self._time_type = arrow_type(time_type)
        self._rows: list[pa.RecordBatch] = []
        check_sortable(ranking.order, rows.schema, "top")
        self._has_windows = has_windows(rows.output_names, window, "top")
        added = rank_columns(ranking.ties)
        for column in added:
            rows.require_free(column.name, "top")
        times = [] if self._has_windows else [Column(WINDOW_START, time_type), Column(WINDOW_END, time_type)]
        self.input = rows.schema
        self.output = pa.schema(arrow_fields((*rows.output, *times, *added)))
        self.output_time = OUTPUT_TIME
        self._stored = [column for column in rows.columns if column.name != PANE]
        self._start = "closing_window_start" if self._has_windows else WINDOW_START
        values = [column for column in self._stored if column.name not in rows.key]
        self.candidates = TimeKeyTable(
            f"candidates_{window_name(window, lateness_us)}",
            key=rows.key_schema,
            value=pa.schema(arrow_fields([Column(self._start, time_type), *values])),
            time=self._start,
            retention=timedelta(microseconds=self._grid.size_us + lateness_us - 1),
            description="The best rows of every key and window in each epoch, until the window closes.",
        )

    @classmethod
    def over(
        cls,
        key: str,
        columns: str,
        window: Tumbling | Hopping,
        *,
        n: int,
        by: str,
        ties: str = "break",
        allowed_lateness: str = "0 seconds",
    ) -> Any:
        """The operator over rows with these key and other columns, for tests without Spark.

        `_pane`, the start of each row's pane in microseconds, is added to them. `by` takes names of columns.
        """
        given = RowColumns.of(key, columns)
        rows = RowColumns((*given.columns, Column(PANE, "bigint")), given.key, (PANE,))
        ranking = Ranking(n, parse_order(by, "top"), Ties.of(ties, "top"))
        return cls(rows, ranking, window, lateness_us=duration_us(allowed_lateness))

    def process_batch(self, batch: pa.RecordBatch, ctx: OperatorContext) -> None:
        """Keep the rows until all are there: then they are ranked once."""
        self._rows.append(batch)

    def on_epoch_end(self, ctx: OperatorContext) -> Iterator[pa.Table]:
        """Append the best rows of the epoch, and yield the windows that close."""
        candidates = ctx.view("candidates")
        if self._rows:
            self._insert(candidates, whole_table(self._rows), ctx)
            self._rows = []
        closing = self._closing(ctx)
        if closing.is_empty:
            return
        found = candidates.rows_between(closing.first_us, closing.before_us).combine_chunks()
        if found.num_rows:
            yield self._results(found)
        if ctx.is_last and found.num_rows:
            # It came out because the stream has ended. Everything else expires.
            candidates.delete(found.select(self._columns.key))

    def _insert(self, candidates: Any, rows: pa.Table, ctx: OperatorContext) -> None:
        """Append the best rows of each window that was open when the epoch before ended."""
        rows = rows.filter(rows[PANE].is_valid()).combine_chunks()
        rows, panes = self._best(rows, whole_column(rows[PANE]).to_numpy())
        places, starts = (np.arange(len(panes)), panes) if self._spread else self._grid.windows_of(panes)
        if ctx.previous_watermark_us is not None:
            is_open = starts + (self._grid.size_us + self._lateness_us) > ctx.previous_watermark_us
            places, starts = places[is_open], starts[is_open]
        rows = rows.take(pa.array(places))
        self._check_windows(rows, starts)
        if not self._grid.is_tumbling:
            rows, starts = self._best(rows, starts)
        candidates.insert(rows.append_column(self._start, self._timestamps(starts)))

    def _best(self, rows: pa.Table, starts: Codes) -> tuple[pa.Table, Codes]:
        if not rows.num_rows:
            return rows, starts
        best = self._rank(rows, starts)
        return rows.take(pa.array(best.rows)), starts[best.rows]

    def _rank(self, rows: pa.Table, starts: Codes) -> Ranked:
        # Ties are broken by the columns from left to right, as rows have them and not as they are stored.
        ordered = rows.select([column.name for column in self._stored])
        return self._ranking.select(ordered, [*group_codes(rows.select(self._columns.key).columns), starts])

    def _closing(self, ctx: OperatorContext) -> WindowRange:
        """The windows that close in this epoch: what the epoch before had closed does not come out again."""
        before_us, now_us = ctx.previous_watermark_us, ctx.watermark_us
        if now_us is None and not ctx.is_last:
            return WindowRange(0, 0)
        return self._grid.closed_between(
            None if before_us is None else before_us - self._lateness_us,
            None if ctx.is_last or now_us is None else now_us - self._lateness_us,
        )

    def _results(self, found: pa.Table) -> pa.Table:
        starts = whole_column(found[self._start]).cast(pa.int64()).to_numpy()
        best = self._rank(found, starts)
        starts = starts[best.rows]
        rows = found.take(pa.array(best.rows)).select(self._columns.output_names)
        if not self._has_windows:
            rows = rows.append_column(WINDOW_START, self._timestamps(starts))
            rows = rows.append_column(WINDOW_END, self._timestamps(starts + self._grid.size_us))
        return with_ranks(rows, best, self._ranking.ties)

    def _check_windows(self, rows: pa.Table, starts: Codes) -> None:
        """Refuse rows of a window that ends at another time: their time would be wrong for what follows."""
        if not self._has_windows or not rows.num_rows:
            return
        ends = whole_column(rows[WINDOW_END]).cast(pa.int64()).fill_null(0).to_numpy()
        differs = np.flatnonzero(ends != starts + self._grid.size_us)
        if len(differs):
            raise OperatorError(
                "rows of a window are in another one that ends at another time",
                object_name="top",
                found=f"window_end {rows[WINDOW_END][int(differs[0])]}",
                expected=f"{self._timestamps(starts + self._grid.size_us)[int(differs[0])]}",
                action="choose windows as long as the hop of those before",
            )

    def _timestamps(self, micros: Codes) -> pa.Array:
        return pa.array(micros, pa.int64()).cast(self._time_type)


def has_windows(names: Sequence[str], window: Tumbling | Hopping, where: str) -> bool:
    """Whether rows come with the columns of a window before, which only a tumbling window can keep."""
    taken = [name for name in names if name.lower() in (WINDOW_START, WINDOW_END)]
    if taken and (sorted(taken) != [WINDOW_END, WINDOW_START] or isinstance(window, Hopping)):
        raise InvalidInputError(
            "a window has a column of this name itself",
            object_name=f"{', '.join(taken)} of {where}",
            action="rename it first: select(… AS …)",
        )
    return bool(taken)
