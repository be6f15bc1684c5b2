"""`WindowJoin`: pairs of rows with equal keys in the same window, once the window is over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from lakestate.config import duration_us
from lakestate.operators.context import OperatorContext
from lakestate.operators.joins.how import How
from lakestate.operators.joins.join_operator import JoinOperator
from lakestate.operators.joins.matching import TimedCodes, find_matches, key_codes
from lakestate.operators.joins.side import JoinRows, JoinSide
from lakestate.operators.windows.panes import OUTPUT_TIME, WINDOW_END, WINDOW_START
from lakestate.operators.windows.specs import Duration, Hopping, Tumbling, window_name
from lakestate.protocol.metadata import Column
from lakestate.tables.arrow.schema import columns_of
from lakestate.tables.time_key.view import TimeKeyView

_NO_KEY = {"left": -1, "right": -2}
"""Numbers for keys with a null, which match nothing."""


class WindowJoin(JoinOperator):
    """Joins rows of two streams by key and window.

    Rows are kept once, whatever the number of their windows, and read when a window closes.

    >>> from lakestate.testing import OperatorHarness
    >>> joined = WindowJoin.over("id bigint", Tumbling("10 seconds"), left="name string, ts timestamp",
    ...                          right="item string, at timestamp", times=("ts", "at"))
    >>> harness = OperatorHarness(joined)
    >>> def at(second):
    ...     return pa.scalar(second * 1_000_000, pa.timestamp("us", tz="UTC")).as_py()
    >>> harness.epoch(left=[{"id": 1, "name": "ann", "ts": at(3)}, {"id": 1, "name": "ann", "ts": at(12)}])
    []
    >>> harness.epoch(right=[{"id": 1, "item": "cup", "at": at(9)}])
    []
    >>> [(row["item"], row["ts"].second) for row in harness.epoch(watermark=at(10))]
    [('cup', 3)]
    """

    follows_time: ClassVar[bool | None] = True

    def __init__(
        self,
        key: Sequence[str],
        left: Sequence[Column],
        right: Sequence[Column],
        times: tuple[str, str],
        window: Tumbling | Hopping,
        how: How,
        *,
        lateness_us: int = 0,
        hidden: Sequence[str] = (),
    ) -> None:
        left_side = JoinSide("left", tuple(key), tuple(left), times[0], 0, 0)
        right_side = JoinSide("right", tuple(key), tuple(right), times[1], 0, 0)
        types = {column.name: column.type for column in left}
        window_times = [Column(name, types[times[0]]) for name in (WINDOW_START, WINDOW_END)]
        super().__init__(
            left_side, right_side, how, between=window_times, hidden=hidden, output_time=OUTPUT_TIME
        )
        self._size_us, self._hop_us = window.grid.size_us, window.grid.hop_us
        self._lateness_us = lateness_us
        self._suffix = window_name(window, lateness_us)
        for side in (left_side, right_side):
            setattr(self, f"{side.name}_rows_{self._suffix}", side.unbounded_table())

    @classmethod
    def over(
        cls,
        key: str,
        window: Tumbling | Hopping,
        *,
        left: str,
        right: str,
        times: tuple[str, str],
        how: str = "inner",
        allowed_lateness: Duration = "0 seconds",
    ) -> Any:
        """The operator over rows with these key and other columns, for tests without Spark."""
        keys = columns_of(key, what="key")
        return cls(
            [column.name for column in keys],
            (*keys, *columns_of(left, what="left row")),
            (*keys, *columns_of(right, what="right row")),
            times,
            window,
            How.of(how, "join"),
            lateness_us=duration_us(allowed_lateness),
        )

    def on_epoch_end(self, ctx: OperatorContext) -> Iterator[pa.Table]:
        """Keep the rows that are not late, and yield the windows that are over."""
        closed_us, closing_us = self._closed(ctx.previous_watermark_us), self._closed(ctx.watermark_us)
        for side in (self._left, self._right):
            self._insert(ctx, side, closed_us)
        if ctx.is_last:
            closing_us = None
        elif closing_us is None or closing_us == closed_us:
            return
        left, right = (
            self._in_windows(side, self._take_closing(ctx, side, closing_us), closed_us, closing_us)
            for side in (self._left, self._right)
        )
        yield from self._join(*self._number(left, right))

    def _closed(self, watermark_us: int | None) -> int | None:
        """The start of the last window that is over; None if no time has passed."""
        if watermark_us is None:
            return None
        return (watermark_us - self._lateness_us - self._size_us) // self._hop_us * self._hop_us

    def _view(self, ctx: OperatorContext, side: JoinSide) -> TimeKeyView:
        view: TimeKeyView = ctx.view(f"{side.name}_rows_{self._suffix}")
        return view

    def _insert(self, ctx: OperatorContext, side: JoinSide, closed_us: int | None) -> None:
        """Keep rows that are in a window which was open when the epoch before ended."""
        rows = self._take_new(side)
        rows = rows.filter(rows[side.time].is_valid())
        if closed_us is not None and rows.num_rows:
            rows = rows.filter(pa.array(side.times_us(rows) >= closed_us + self._hop_us))
        if rows.num_rows:
            self._view(ctx, side).insert(rows)

    def _take_closing(self, ctx: OperatorContext, side: JoinSide, closing_us: int | None) -> pa.Table:
        """The rows of windows that are over now. Those in no other window leave the state."""
        view = self._view(ctx, side)
        if closing_us is None:
            rows = view.rows_between(None, None)
            if rows.num_rows:
                view.delete(rows.select(side.key))
            return rows
        rows = view.rows_between(None, closing_us + self._size_us)
        if rows.num_rows:
            view.expire(closing_us + self._hop_us)
        return rows

    def _in_windows(
        self, side: JoinSide, rows: pa.Table, closed_us: int | None, closing_us: int | None
    ) -> tuple[pa.Table, np.ndarray]:
        """Each row once for each of its windows that are over now, and the starts of these windows."""
        hop_us, times_us = self._hop_us, side.times_us(rows)
        last = times_us // hop_us * hop_us
        first = (times_us - self._size_us) // hop_us * hop_us + hop_us
        if closed_us is not None:
            first = np.maximum(first, closed_us + hop_us)
        if closing_us is not None:
            last = np.minimum(last, closing_us)
        counts = np.maximum((last - first) // hop_us + 1, 0)
        numbers = np.repeat(np.arange(len(counts)), counts)
        nth = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = first[numbers] + nth * hop_us
        type_ = rows.schema.field(side.time).type
        found = rows.take(pa.array(numbers))
        found = found.append_column(WINDOW_START, pa.array(starts, pa.int64()).cast(type_))
        ends = pa.array(starts + self._size_us, pa.int64()).cast(type_)
        return found.append_column(WINDOW_END, ends), starts

    def _number(
        self, left: tuple[pa.Table, np.ndarray], right: tuple[pa.Table, np.ndarray]
    ) -> tuple[JoinRows, JoinRows]:
        sides = ((self._left, *left), (self._right, *right))
        codes = key_codes(*[[rows[name] for name in side.key] for side, rows, _ in sides])
        numbered = []
        for (side, rows, starts), numbers in zip(sides, codes, strict=True):
            usable = side.usable(rows).to_numpy()
            numbered.append(JoinRows(rows, TimedCodes(np.where(usable, numbers, _NO_KEY[side.name]), starts)))
        return numbered[0], numbered[1]

    def _join(self, left: JoinRows, right: JoinRows) -> Iterator[pa.Table]:
        matches = find_matches(left.timed, right.timed, 0, 0)
        if self._how.yields_pairs:
            yield from self._pairs(left.table, right.table, matches)
        if self._how is How.SEMI:
            yield from self._alone(self._left, left.table.filter(pa.array(matches.left)))
        if self._how.yields_left_alone:
            yield from self._alone(self._left, left.table.filter(pa.array(~matches.left)))
        if self._how.yields_right_alone:
            yield from self._alone(self._right, right.table.filter(pa.array(~matches.right)))
