"""`NewestRows`: the newest row of each key, as updates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.config import duration_us
from lakestate.operators.aggregates.changes import change_rows
from lakestate.operators.context import OperatorContext
from lakestate.operators.operator import Operator
from lakestate.operators.selection.codes import group_codes, order_codes
from lakestate.operators.selection.row_columns import RowColumns, not_before, whole_table
from lakestate.operators.selection.sorted_rows import SortedRows
from lakestate.protocol.metadata import Column
from lakestate.row_kind import CHANGE, Emit
from lakestate.tables.arrow.schema import arrow_fields
from lakestate.tables.keyed.table import KeyedTable, Ttl


class NewestRows(Operator):
    """Yields a row if it is newer than the newest row of its key so far.

    The newest row is the last one in the order of event times, then of all columns from left to right. A
    row without event time is older than all others.

    >>> from lakestate.testing import OperatorHarness
    >>> last = NewestRows.over("user string", "ts timestamp, page string", time="ts")
    >>> harness = OperatorHarness(last)
    >>> from datetime import UTC, datetime
    >>> at = lambda second: datetime(2026, 1, 1, 12, 0, second, tzinfo=UTC)
    >>> rows = [{"user": "ann", "ts": at(5), "page": "/b"}, {"user": "ann", "ts": at(1), "page": "/a"}]
    >>> [row["page"] for row in harness.epoch(rows)]
    ['/b']
    >>> harness.epoch([{"user": "ann", "ts": at(4), "page": "/c"}])
    []
    """

    def __init__(
        self, rows: RowColumns, *, time: str, within_us: int | None = None, emit: Emit = Emit.UPDATES
    ) -> None:
        self._columns = rows
        self._time = time
        self._within_us = within_us
        self._emit = emit
        self._rows: list[pa.RecordBatch] = []
        changes = (Column(CHANGE, "string"),) if emit is Emit.CHANGES else ()
        self.input = rows.schema
        self.output = pa.schema(arrow_fields((*rows.output, *changes)))
        self.newest = KeyedTable(
            key=rows.key_schema,
            value=pa.schema(arrow_fields(rows.values)),
            ttl=None if within_us is None else Ttl(f"{within_us} us", column=time),
            description="The newest row of every key.",
        )

    @classmethod
    def over(
        cls, key: str, columns: str, *, time: str, within: str | None = None, emit: str = "updates"
    ) -> Any:
        """The operator over rows with these key and other columns, for tests without Spark."""
        within_us = None if within is None else duration_us(within)
        emitted = Emit.of(emit, "deduplicate")
        return cls(RowColumns.of(key, columns), time=time, within_us=within_us, emit=emitted)

    def process_batch(self, batch: pa.RecordBatch, ctx: OperatorContext) -> None:
        """Keep the rows until all are there: then every key is looked up once."""
        self._rows.append(batch)

    def on_epoch_end(self, ctx: OperatorContext) -> Iterator[pa.Table]:
        """Replace the rows of keys that have a newer one, and yield what changed."""
        if not self._rows:
            return
        rows = self._newest_of_each(self._without_forgotten(whole_table(self._rows), ctx))
        self._rows = []
        if not rows.num_rows:
            return
        newest, keys = ctx.view("newest"), rows.select(self._columns.key)
        was, found = newest.lookup(keys, None if self._emit is Emit.CHANGES else [self._time])
        is_newer = self._is_newer(rows, was, found, newest)
        after = rows.filter(is_newer)
        newest.put(after)
        names = self._columns.output_names
        if self._emit is not Emit.CHANGES:
            yield after.select(names)
            return
        before = pa.table([*keys.columns, *found.columns], names=[*keys.column_names, *found.schema.names])
        before, was = before.filter(is_newer).select(names), was.filter(is_newer)
        there = pa.array(np.ones(after.num_rows, dtype=bool))
        yield change_rows(before, after.select(names), was, there, there)

    def _without_forgotten(self, rows: pa.Table, ctx: OperatorContext) -> pa.Table:
        """Without rows so old that a newer one may have been forgotten."""
        if self._within_us is None:
            return rows
        watermark_us = ctx.previous_watermark_us
        return not_before(rows, self._time, None if watermark_us is None else watermark_us - self._within_us)

    def _newest_of_each(self, rows: pa.Table) -> pa.Table:
        if not rows.num_rows:
            return rows
        keys = group_codes(rows.select(self._columns.key).columns)
        times = order_codes(rows[self._time], descending=False, nulls_first=True)
        arranged = SortedRows.of([*keys, *times]).break_ties(rows)
        is_last = np.append(arranged.begins_group(keys)[1:], True)
        return rows.take(pa.array(arranged.rows[is_last]))

    def _is_newer(self, rows: pa.Table, was: pa.Array, found: pa.RecordBatch, newest: Any) -> pa.Array:
        """Whether each row comes after the one that its key has, if there is one."""
        old, new = found.column(self._time), rows[self._time].combine_chunks()
        both_null = pc.and_(pc.and_(old.is_null(), new.is_null()), was)
        is_tied = pc.or_(pc.fill_null(pc.equal(old, new), False), both_null)
        later = pc.fill_null(pc.greater(new, old), False)
        # A null is older than every time.
        later = pc.or_(later, pc.and_(old.is_null(), new.is_valid()))
        newer = pc.or_(pc.invert(was), later)
        if not pc.any(is_tied).as_py():
            return newer
        wins = self._wins_tie(rows.filter(is_tied), newest)
        return pc.replace_with_mask(newer, is_tied, wins)

    def _wins_tie(self, rows: pa.Table, newest: Any) -> pa.Array:
        """Whether each row comes after the stored row of its key, by all columns."""
        keys = rows.select(self._columns.key)
        stored = newest.get(keys)
        before = pa.table([*keys.columns, *stored.columns], names=[*keys.column_names, *stored.schema.names])
        count = rows.num_rows
        pairs = np.tile(np.arange(count), 2)
        both = pa.concat_tables([before.select(rows.column_names), rows]).combine_chunks()
        arranged = SortedRows.of([pairs]).break_ties(both)
        second = arranged.rows[1::2]
        # Two rows that are the same remain tied, and nothing has changed.
        differs = arranged.begins_run[1::2]
        wins = np.zeros(count, dtype=bool)
        wins[pairs[second]] = (second >= count) & differs
        return pa.array(wins)
