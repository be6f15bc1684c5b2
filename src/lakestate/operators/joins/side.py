"""`JoinSide`: what a join keeps of one of its inputs, and when a row of it is done.

Rows are appended to a table by key and time. Which of them had a match is a table too, so that nothing is
written again: a row is known by its key, its time and the epoch in which it came. Rows that agree in these
match the same rows of the other side, because no other column has a say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError
from lakestate.operators.context import OperatorContext
from lakestate.operators.joins.matching import TimedCodes, is_among, key_codes, packed_ids
from lakestate.protocol.metadata import Column
from lakestate.tables.arrow.schema import arrow_fields
from lakestate.tables.arrow.wide_text import combine_chunks
from lakestate.tables.time_key.table import TimeKeyTable
from lakestate.tables.time_key.view import TimeKeyView

EPOCH = "_epoch"
"""The column of the epoch in which a row came."""
MATCHED = "_matched"
"""The column that says whether a row had a match in that epoch."""


@dataclass(frozen=True)
class JoinRows:
    """Rows of a side, with numbers for their keys."""

    table: pa.Table
    timed: TimedCodes

    def __len__(self) -> int:
        return len(self.timed)

    def filter(self, mask: np.ndarray) -> JoinRows:
        """Some of the rows."""
        timed = TimedCodes(self.timed.codes[mask], self.timed.times_us[mask])
        return JoinRows(self.table.filter(pa.array(mask)), timed)

    def followed_by(self, other: JoinRows) -> JoinRows:
        """These rows and then others, with the columns of the others."""
        if not len(self):
            return other
        table = pa.concat_tables([self.table.select(other.table.column_names), other.table])
        codes = np.concatenate([self.timed.codes, other.timed.codes])
        times_us = np.concatenate([self.timed.times_us, other.timed.times_us])
        return JoinRows(combine_chunks(table), TimedCodes(codes, times_us))


@dataclass(frozen=True)
class JoinSide:
    """One input of a join. A row matches rows of the other side from `near_us` to `far_us` after it."""

    name: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    time: str
    near_us: int
    far_us: int | None
    """None: rows are kept for ever."""
    yields_alone: bool = False
    """Rows without a match come out when they are done."""
    yields_once: bool = False
    """A row is done at its first match."""

    def __post_init__(self) -> None:
        taken = [column.name for column in self.columns if column.name in (EPOCH, MATCHED)]
        if taken:
            raise InvalidInputError(
                "a join needs this name for a column of its state",
                object_name=f"{self.name} rows",
                found=", ".join(taken),
                action="rename the column with select() first",
            )

    @cached_property
    def names(self) -> list[str]:
        """All columns."""
        return [column.name for column in self.columns]

    @property
    def remembers(self) -> bool:
        """Whether it matters if a row had a match."""
        return self.yields_alone or self.yields_once

    def rows_table(self) -> TimeKeyTable:
        """The table of rows that may still match."""
        # Rows that come out in the end must not be gone before, even if the bounds have changed.
        return self._table(None if self.yields_alone else self._retention)

    def unbounded_table(self) -> TimeKeyTable:
        """The same, for an operator that says itself when rows expire."""
        return self._table(None)

    def _table(self, retention: timedelta | None) -> TimeKeyTable:
        known = {column.name: column for column in self.columns}
        values = [replace(known[name], nullable=True) for name in self.names if name not in self.key]
        if self.remembers:
            values += [Column(EPOCH, "bigint"), Column(MATCHED, "boolean")]
        return TimeKeyTable(
            key=pa.schema(arrow_fields(known[name] for name in self.key)),
            value=pa.schema(arrow_fields(values)),
            time=self.time,
            retention=retention,
            description=f"The rows of the {self.name} side that can still match.",
        )

    def matched_table(self) -> TimeKeyTable:
        """The table of rows that had a match after the epoch in which they came."""
        known = {column.name: column for column in self.columns}
        values = [replace(known[self.time], nullable=True), Column(EPOCH, "bigint")]
        return TimeKeyTable(
            key=pa.schema(arrow_fields(known[name] for name in self.key)),
            value=pa.schema(arrow_fields(values)),
            time=self.time,
            retention=None if self.yields_alone else self._retention,
            description=f"Rows of the {self.name} side that have had a match, by key, time and epoch.",
        )

    @property
    def _retention(self) -> timedelta | None:
        return None if self.far_us is None else timedelta(microseconds=max(0, self.far_us))

    def rows_view(self, ctx: OperatorContext) -> TimeKeyView:
        """The rows in state."""
        view: TimeKeyView = ctx.view(f"{self.name}_rows")
        return view

    def matched_view(self, ctx: OperatorContext) -> TimeKeyView:
        """The matches in state."""
        view: TimeKeyView = ctx.view(f"{self.name}_matched")
        return view

    def times_us(self, rows: pa.Table) -> np.ndarray:
        """The times of rows, in microseconds; all the same where rows are kept for ever."""
        if self.far_us is None:
            return np.zeros(rows.num_rows, dtype=np.int64)
        times: np.ndarray = rows[self.time].cast(pa.int64()).to_numpy()
        return times

    def usable(self, rows: pa.Table) -> pa.Array:
        """Which rows can match at all: those without a null in their key and time."""
        valid = pc.is_valid(rows[self.time])
        for name in self.key:
            valid = pc.and_(valid, pc.is_valid(rows[name]))
        return valid

    def held(self, ctx: OperatorContext, other: JoinRows, near_us: int, far_us: int) -> JoinRows:
        """Rows in state that may match new rows of the other side, which reach from near to far."""
        if not len(other):
            return self._numbered(self.rows_view(ctx).rows_between(0, 0), np.empty(0, dtype=np.int64))
        codes, places = np.unique(other.timed.codes, return_index=True)
        keys = other.table.select(self.key).take(pa.array(places))
        start: int | None = None
        end: int | None = None
        if self.far_us is not None:
            start = int(other.timed.times_us.min()) + near_us
            end = int(other.timed.times_us.max()) + far_us + 1
            if ctx.previous_watermark_us is not None:
                start = max(start, ctx.previous_watermark_us - self.far_us)
        found = self.rows_view(ctx).rows_of(keys, start, end)
        return self._numbered(found.drop_columns([TimeKeyView.QUERY]), codes[found[TimeKeyView.QUERY]])

    def _numbered(self, rows: pa.Table, codes: np.ndarray) -> JoinRows:
        return JoinRows(rows, TimedCodes(codes, self.times_us(rows)))

    def closes_before_us(self, ctx: OperatorContext) -> int | None:
        """Rows with a time before this one can match no row that is yet to come."""
        if self.far_us is None or ctx.watermark_us is None:
            return None
        return ctx.watermark_us - self.far_us

    def insert(self, ctx: OperatorContext, rows: pa.Table, matched: np.ndarray) -> None:
        """Keep new rows."""
        if not rows.num_rows:
            return
        if self.remembers:
            epochs = pa.array(np.full(rows.num_rows, int(ctx.epoch), dtype=np.int64))
            rows = rows.append_column(EPOCH, epochs).append_column(MATCHED, pa.array(matched))
        self.rows_view(ctx).insert(rows)

    def record(self, ctx: OperatorContext, held: JoinRows, matched: np.ndarray) -> pa.Table:
        """Remember that rows in state have a match now. Returns those for which it is the first one."""
        candidates = held.filter(matched & ~_flags(held.table))
        if not len(candidates):
            return candidates.table
        view = self.matched_view(ctx)
        codes, places = np.unique(candidates.timed.codes, return_index=True)
        keys = candidates.table.select(self.key).take(pa.array(places))
        known = view.rows_of(keys)
        ids, known_ids = self._ids(
            (candidates.table, candidates.timed.codes), (known, codes[known[TimeKeyView.QUERY]])
        )
        is_first = ~is_among(ids, known_ids)
        first, ids = candidates.table.filter(pa.array(is_first)), ids[is_first]
        if len(ids):
            once = np.unique(ids, return_index=True)[1]
            view.insert(first.select([*self.key, self.time, EPOCH]).take(pa.array(once)))
        return first

    def close(self, ctx: OperatorContext) -> pa.Table:
        """Take the rows out of state that are done, and return those that never had a match."""
        before_us = self.closes_before_us(ctx)
        view, matched_view = self.rows_view(ctx), self.matched_view(ctx)
        if not ctx.is_last and before_us is None:
            return view.rows_between(0, 0)
        rows = view.rows_between(None, None if ctx.is_last else before_us)
        if not rows.num_rows:
            return rows
        known = matched_view.rows_between(None, None if ctx.is_last else before_us)
        if ctx.is_last:
            # Rows of a job that is started again must not come out a second time, whatever their time.
            view.delete(rows.select(self.key))
            matched_view.delete(known.select(self.key))
        elif before_us is not None:
            view.expire(before_us)
            matched_view.expire(before_us)
        rows = rows.filter(pa.array(~_flags(rows)))
        codes, known_codes = key_codes(_columns(rows, self.key), _columns(known, self.key))
        ids, known_ids = self._ids((rows, codes), (known, known_codes))
        return rows.filter(pa.array(~is_among(ids, known_ids)))

    def _ids(self, *parts: tuple[pa.Table, np.ndarray]) -> list[np.ndarray]:
        """Numbers for rows that differ exactly where key, time or epoch differ."""
        return packed_ids(*[[codes, self.times_us(rows), rows[EPOCH].to_numpy()] for rows, codes in parts])


def _columns(rows: pa.Table, names: Sequence[str]) -> list[pa.ChunkedArray]:
    return [rows[name] for name in names]


def _flags(rows: pa.Table) -> np.ndarray:
    flags: np.ndarray = rows[MATCHED].to_numpy()
    return flags.astype(bool)
