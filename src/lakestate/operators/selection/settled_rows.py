"""`SettledRows`: the last row of each key, yielded once no row of the key can follow within some time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestate.config import duration_us
from lakestate.operators.context import OperatorContext
from lakestate.operators.operator import Operator
from lakestate.operators.selection.codes import Codes, group_codes
from lakestate.operators.selection.row_columns import RowColumns, add_us, not_before, times_us, whole_table
from lakestate.operators.selection.sorted_rows import SortedRows
from lakestate.tables.arrow.columns import whole_column
from lakestate.tables.arrow.schema import arrow_fields
from lakestate.tables.time_key.table import TimeKeyTable

NEVER = np.iinfo(np.int64).max
"""Later than all times."""
CHAIN_START = "chain_start"
"""When the first of the rows of an epoch came that follow each other, of which the last one is stored."""


class SettledRows(Operator):
    """Yields a row that no row of its key follows within some event time, once the watermark has passed that.

    Of rows with the same time, the last one is that with the greatest columns, from left to right. Rows
    behind the watermark are dropped: the row that they follow may have been yielded.

    >>> from datetime import UTC, datetime
    >>> from lakestate.testing import OperatorHarness
    >>> settled = SettledRows.over("user string", "ts timestamp", time="ts", within="10 seconds")
    >>> harness = OperatorHarness(settled)
    >>> def at(second): return datetime(2026, 1, 1, 12, 0, second, tzinfo=UTC)
    >>> harness.epoch([{"user": "ann", "ts": at(1)}, {"user": "ann", "ts": at(9)}])
    []
    >>> [row["ts"].second for row in harness.epoch(watermark=at(20))]
    [9]
    """

    follows_time: ClassVar[bool | None] = True

    def __init__(self, rows: RowColumns, *, time: str, within_us: int) -> None:
        rows.require_free(CHAIN_START, "deduplicate")
        self._columns = rows
        self._time = time
        self._time_type = rows.schema.field(time).type
        self._within_us = within_us
        self._rows: list[pa.RecordBatch] = []
        self.input = rows.schema
        self.output = pa.schema(arrow_fields(rows.output))
        self.pending = TimeKeyTable(
            key=rows.key_schema,
            value=pa.schema([*arrow_fields(rows.values), pa.field(CHAIN_START, self._time_type)]),
            time=time,
            retention=f"{within_us} us",
            description="Rows that may be the last of their key, until it is known.",
        )

    @classmethod
    def over(cls, key: str, columns: str, *, time: str, within: str) -> Any:
        """The operator over rows with these key and other columns, for tests without Spark."""
        return cls(RowColumns.of(key, columns), time=time, within_us=duration_us(within))

    def process_batch(self, batch: pa.RecordBatch, ctx: OperatorContext) -> None:
        """Keep the rows until all are there: then those that others follow are left out."""
        self._rows.append(batch)

    def on_epoch_end(self, ctx: OperatorContext) -> Iterator[pa.Table]:
        """Store the rows, and yield those that are settled."""
        pending = ctx.view("pending")
        if self._rows:
            rows = not_before(whole_table(self._rows), self._time, ctx.previous_watermark_us)
            self._rows = []
            if rows.num_rows:
                pending.insert(self._last_of_chains(rows))
        if ctx.watermark_us is None and not ctx.is_last:
            return
        end_us = None if ctx.is_last or ctx.watermark_us is None else ctx.watermark_us - self._within_us
        due = pending.rows_between(None, end_us).combine_chunks()
        if not due.num_rows:
            return
        yield self._settled(due, pending, end_us).select(self._columns.output_names)
        if end_us is None:
            pending.delete(due.select(self._columns.key))

    def _last_of_chains(self, rows: pa.Table) -> pa.Table:
        """The rows that no other row of the epoch follows, each with the time at which its chain begins."""
        arranged, begins, times = self._arrange(rows)
        begins[1:] |= times[1:] > add_us(times[:-1], self._within_us)
        is_last = np.append(begins[1:], True)
        last = rows.take(pa.array(arranged.rows[is_last]))
        return last.append_column(CHAIN_START, pa.array(times[begins], pa.int64()).cast(self._time_type))

    def _settled(self, due: pa.Table, pending: Any, end_us: int | None) -> pa.Table:
        """The rows that no other row of their key follows, of those that are due or of later ones.

        A chain follows a row if it ends later, and begins early enough.
        """
        arranged, begins, times = self._arrange(due)
        groups = np.cumsum(begins) - 1
        starts = times_us(due, CHAIN_START)[arranged.rows]
        nearest = least_after(groups, starts)
        if end_us is not None:
            keys = due.select(self._columns.key).take(pa.array(arranged.rows[begins]))
            nearest = np.minimum(nearest, self._least_later(keys, pending, end_us)[groups])
        is_settled = nearest > add_us(times, self._within_us)
        return due.take(pa.array(arranged.rows[is_settled]))

    def _arrange(self, rows: pa.Table) -> tuple[SortedRows, npt.NDArray[np.bool_], Codes]:
        """Rows by key, time and columns; where a key begins; and the times in that order."""
        times, keys = times_us(rows, self._time), group_codes(rows.select(self._columns.key).columns)
        arranged = SortedRows.of([*keys, times]).break_ties(rows.select(self._columns.schema.names))
        return arranged, arranged.begins_group(keys), times[arranged.rows]

    def _least_later(self, keys: pa.Table, pending: Any, end_us: int) -> Codes:
        """For each key, when the first of its chains begins that is not due yet."""
        found = pending.rows_of(keys, end_us, columns=[CHAIN_START])
        least = np.full(keys.num_rows, NEVER)
        np.minimum.at(least, whole_column(found[pending.QUERY]).to_numpy(), times_us(found, CHAIN_START))
        return least


def least_after(groups: Codes, values: Codes) -> Codes:
    """For each row, the least value of the rows after it in its group, which are ascending; or `NEVER`.

    >>> least_after(np.array([0, 0, 0, 1]), np.array([5, 9, 7, 1])) == [7, 7, NEVER, NEVER]
    array([ True,  True,  True,  True])
    """
    order = np.argsort(values, kind="stable")
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[order] = np.arange(len(values))
    # From the end on, every group has lower numbers than those before, so that the least begins anew.
    least = np.minimum.accumulate((groups * len(values) + ranks)[::-1])[::-1]
    found = np.full(len(values), NEVER)
    has_next = np.flatnonzero(groups[:-1] == groups[1:])
    found[has_next] = values[order[least[has_next + 1] % len(values)]]
    return found
