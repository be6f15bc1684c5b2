"""`Lookup`: rows with the newest row of their key on the other side, as it is when they are processed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.operators.context import OperatorContext
from lakestate.operators.joins.how import How
from lakestate.operators.joins.matching import key_codes
from lakestate.operators.operator import TwoInputOperator
from lakestate.protocol.metadata import Column
from lakestate.tables.arrow.schema import arrow_fields, columns_of
from lakestate.tables.arrow.wide_text import combine_chunks
from lakestate.tables.keyed.table import KeyedTable, Ttl


class Lookup(TwoInputOperator):
    """Joins each left row with the newest right row of its key.

    Right rows of an epoch count before its left rows. The newest is that with the latest time; of several
    with the same time, the greatest by its columns, from the first to the last, where null is least. Without
    `time`, rows of a later epoch are newer.

    >>> from lakestate.testing import OperatorHarness
    >>> named = Lookup.over("id bigint", left="price bigint", right="item string")
    >>> harness = OperatorHarness(named)
    >>> harness.epoch(left=[{"id": 1, "price": 5}], right=[{"id": 1, "item": "cup"}])
    [{'id': 1, 'price': 5, 'item': 'cup'}]
    >>> harness.epoch(left=[{"id": 2, "price": 7}])
    [{'id': 2, 'price': 7, 'item': None}]
    """

    def __init__(
        self,
        key: Sequence[str],
        left: Sequence[Column],
        right: Sequence[Column],
        how: How = How.LEFT,
        *,
        time: str | None = None,
        keep: timedelta | None = None,
        hidden: Sequence[str] = (),
        output_time: str | None = None,
    ) -> None:
        self._key = list(key)
        self._sides = {"left": pa.schema(arrow_fields(left)), "right": pa.schema(arrow_fields(right))}
        self._values = [column.name for column in right if column.name not in key]
        self._time = time
        self._how = how
        self._new: dict[str, list[pa.RecordBatch]] = {"left": [], "right": []}
        shown = [column for column in right if column.name in self._values and column.name not in hidden]
        self._shown = [column.name for column in shown]
        self.output = pa.schema(
            [*self._sides["left"], *(field.with_nullable(True) for field in arrow_fields(shown))]
        )
        self.output_time = output_time
        self.newest = KeyedTable(
            key=pa.schema([self._sides["right"].field(name) for name in key]),
            value=pa.schema([self._sides["right"].field(name) for name in self._values]),
            ttl=None if keep is None else Ttl(f"{keep // timedelta(microseconds=1)} us", column=time),
            description="The newest row of every key of the right side.",
        )

    @classmethod
    def over(
        cls,
        key: str,
        *,
        left: str,
        right: str,
        how: str = "left",
        time: str | None = None,
        keep: timedelta | None = None,
    ) -> Any:
        """The operator over rows with these key and other columns, for tests without Spark."""
        keys = columns_of(key, what="key")
        return cls(
            [column.name for column in keys],
            (*keys, *columns_of(left, what="left row")),
            (*keys, *columns_of(right, what="right row")),
            How.of(how, "lookup", (How.LEFT, How.INNER)),
            time=time,
            keep=keep,
        )

    def needed_columns(self, input_name: str) -> pa.Schema:
        """The columns of a side."""
        return self._sides[input_name]

    def process(self, input_name: str, batch: pa.RecordBatch, ctx: OperatorContext) -> None:
        """Keep the rows until all are there."""
        self._new[input_name].append(batch)

    def on_epoch_end(self, ctx: OperatorContext) -> Iterator[pa.Table]:
        """Remember the newest right rows, and then look up the left ones."""
        right, left = self._take_new("right"), self._take_new("left")
        if right.num_rows:
            self._remember(ctx, right)
        if left.num_rows:
            yield self._look_up(ctx, left)

    def _take_new(self, name: str) -> pa.Table:
        rows = pa.Table.from_batches(self._new[name], schema=self._sides[name])
        self._new[name] = []
        return combine_chunks(rows)

    def _remember(self, ctx: OperatorContext, rows: pa.Table) -> None:
        rows = rows.filter(self._has_key(rows))
        if not rows.num_rows:
            return
        view = ctx.view("newest")
        (codes,) = key_codes([rows[name] for name in self._key])
        if self._time is None:
            view.put(rows.take(pa.array(newest_rows(rows, codes, None, self._values))))
            return
        first = np.unique(codes, return_index=True)[1]
        keys = rows.select(self._key).take(pa.array(first))
        was, values = view.lookup(keys)
        there = pa.Table.from_batches([values]).filter(was)
        known = pa.table([*keys.filter(was).columns, *there.columns], names=[*self._key, *there.column_names])
        both = combine_chunks(pa.concat_tables([known.select(rows.column_names).cast(rows.schema), rows]))
        codes = np.concatenate([codes[first][was.to_numpy(zero_copy_only=False)], codes])
        chosen = newest_rows(both, codes, self._time, self._values)
        # Of equal rows the one in state counts, which need not be written again.
        view.put(both.take(pa.array(chosen[chosen >= known.num_rows])))

    def _look_up(self, ctx: OperatorContext, rows: pa.Table) -> pa.Table:
        found, values = ctx.view("newest").lookup(rows.select(self._key), self._shown)
        matched = pc.and_(found, self._has_key(rows))
        columns = [pc.if_else(matched, values[name], None) for name in self._shown]
        joined = pa.table([*rows.columns, *columns], names=[*rows.column_names, *self._shown])
        return joined.filter(matched) if self._how is How.INNER else joined

    def _has_key(self, rows: pa.Table) -> pa.ChunkedArray:
        """Rows without a null in their key: a null matches nothing, as in SQL."""
        valid = pc.is_valid(rows[self._key[0]])
        for name in self._key[1:]:
            valid = pc.and_(valid, pc.is_valid(rows[name]))
        return valid


def newest_rows(rows: pa.Table, codes: np.ndarray, time: str | None, columns: Sequence[str]) -> np.ndarray:
    """The place of the newest row of each key: the first of those that are equal in all columns."""
    times = np.zeros(len(codes), dtype=np.int64)
    if time is not None:
        # A row without time is older than all others.
        oldest = pa.scalar(np.iinfo(np.int64).min, pa.int64())
        times = pc.fill_null(rows[time].cast(pa.int64()), oldest).to_numpy()
    order = np.lexsort((times, codes))
    sorted_codes, sorted_times = codes[order], times[order]
    is_last = np.append(sorted_codes[1:] != sorted_codes[:-1], True)
    latest = sorted_times[np.flatnonzero(is_last)]
    rank = np.cumsum(is_last) - is_last
    tied = np.sort(order[sorted_times == latest[rank]])
    if len(tied) == len(latest):
        return tied
    return _greatest(rows.select(columns).take(pa.array(tied)), codes[tied], tied)


def _greatest(rows: pa.Table, codes: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Of the rows of each key, the place of the greatest by its columns; the first of equal ones."""
    values = [each for column in rows.columns for each in (pc.is_valid(column), _sortable(column))]
    keys = [pa.array(codes), *values, pa.array(-places)]
    names = [f"column_{number}" for number in range(len(keys))]
    order = pc.sort_indices(
        pa.table(keys, names=names), sort_keys=[(name, "ascending") for name in names]
    ).to_numpy()
    is_last = np.append(codes[order][1:] != codes[order][:-1], True)
    found: np.ndarray = np.sort(places[order[is_last]])
    return found


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Values in an order: nested ones in that of their text."""
    return (
        pa.array([repr(value) for value in column.to_pylist()]) if pa.types.is_nested(column.type) else column
    )
