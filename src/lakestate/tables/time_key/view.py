"""`TimeKeyView`: what operator code holds to read and write a `TimeKeyTable`.

A view is the rows written in this epoch and the stored ones. Rows of this epoch are sorted only when
they are searched, so that code that only appends does not pay for it. A file is opened only if one of
its rows may be in the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from lakestate.observability.time_parts import LOOKUP, WRITE, timed
from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.metadata import TableFiles
from lakestate.protocol.values import Epoch, FileRef
from lakestate.tables.arrow.conform import conform_columns
from lakestate.tables.arrow.wide_text import combine_chunks, narrow_text
from lakestate.tables.context import TableContext
from lakestate.tables.contract import EpochCheckpointer, require_checkpointer
from lakestate.tables.event_time import EventTimeLike, event_time_us
from lakestate.tables.runs.files import Upgrade
from lakestate.tables.runs.layout import QUERY, Rows, RunLayout
from lakestate.tables.runs.lookup import HashedKeys
from lakestate.tables.runs.merge import SLICE_ROWS, merge_similar
from lakestate.tables.runs.ownership import check_queried_keys, check_written_keys
from lakestate.tables.runs.run import Run
from lakestate.tables.runs.table import ScannedView
from lakestate.tables.time_key.deletes import DeletesLayout, hidden_places, without_places
from lakestate.tables.time_key.files import TimeKeyCheckpointer, later_us, retained_from_us
from lakestate.tables.time_key.runs import (
    TimeSpan,
    event_times,
    matches,
    merge_time_runs,
    order_by_time,
    rows_within,
)
from lakestate.tables.time_key.stored import NOTHING, StoredRows, live_places


class TimeKeyView(ScannedView):
    """One subtask's rows of a `TimeKeyTable`.

    Times are datetimes, with a time zone unless the column is `timestamp_ntz`, or microseconds since
    1970. Reads see rows as soon as they are inserted. Keys of another subtask are refused.

    >>> import lakestate as ls
    >>> clicks = ls.TimeKeyTable("clicks", key="user string", value="page string, ts timestamp")
    >>> backend = ls.ParquetBackend("memory://docs-time-key")
    >>> tables = ls.TableManager.load(ls.TaskInfo("job", "op"), [clicks], backend, restore_from=None)
    >>> view = tables.time_key("clicks")
    >>> view.insert(pa.table({"user": ["ann", "bob", "ann"], "page": ["/a", "/b", "/c"],
    ...                       "ts": pa.array([30, 10, 20], pa.timestamp("us", tz="UTC"))}))
    >>> view.rows_between(10, 30)["page"].to_pylist()
    ['/b', '/c']
    >>> view.rows_of(pa.table({"user": ["eve", "ann"]})).select(["__query", "page"]).to_pydict()
    {'__query': [1, 1], 'page': ['/c', '/a']}
    >>> view.expire(20)
    >>> view.min_time(), view.count()
    (20, 2)
    >>> view.delete(pa.table({"user": ["ann"]}))
    >>> view.to_pylist()
    []
    """

    QUERY: ClassVar[str] = QUERY
    """The name of the first column that `rows_of` returns."""

    def __init__(
        self, layout: RunLayout, files: TableFiles, context: TableContext, upgrade: Upgrade | None = None
    ) -> None:
        self._layout = layout
        self._context = context
        self._stored = StoredRows.open(files, layout, context, upgrade)
        self._expired_before_us = files.expired_before_us
        self._appended: list[Run] = []
        self._sorted: list[Run] = []
        self._in_flight: TimeKeyCheckpointer | None = None

    @timed(WRITE)
    def insert(self, rows: Rows) -> None:
        """Append rows. Equal rows are all kept. Rows that expire with this epoch are not stored."""
        layout = self._layout
        what = f"insert into {layout.config.name}"
        keys = conform_columns(rows, layout.key_fields, what)
        values = conform_columns(rows, layout.value_fields, what)
        if not rows.num_rows:
            return
        routing, fine = layout.hashes(keys)
        check_written_keys(
            KeyRange(int(routing.min()), int(routing.max())), layout.config.name, self._context.task
        )
        hashes = [pa.array(routing)] if fine is None else [pa.array(routing), pa.array(fine)]
        table = pa.Table.from_arrays([*hashes, *keys, *values], schema=layout.schema)
        self._appended.append(Run(table, layout))

    @timed(LOOKUP)
    def rows_between(
        self,
        start: EventTimeLike | None,
        end: EventTimeLike | None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Rows with start <= time < end, in order of time. None leaves a side open.

        `columns` are the value columns to return. Of a large file, others are not fetched.
        """
        span, part = self._span(start, end), self._part(columns)
        pieces = [self._rows_in(run, part, span) for run in self._written_runs()]
        for file, live in self._stored.live_files(span):
            run, hidden = self._stored.run(file, part.value_names), self._stored.hidden_places(file)
            pieces.append(self._rows_in(run, part, live, hidden))
        found = self._concat(pieces, part)
        found = found.take(pa.array(np.argsort(self._times(found), kind="stable")))
        return self._answer(found, columns)

    @timed(LOOKUP)
    def rows_of(
        self,
        keys: Rows,
        start: EventTimeLike | None = None,
        end: EventTimeLike | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Rows of the given keys with start <= time < end, in the order of the keys and then of time.

        The first column, `__query`, is the row number in `keys` that a row belongs to, from 0. `columns`
        as in `rows_between`.
        """
        layout, span, part = self._layout, self._span(start, end), self._part(columns)
        asked_keys = conform_columns(keys, layout.key_fields, f"rows of {layout.config.name}")
        hashed = HashedKeys.of(layout, asked_keys)
        query, order = hashed.query(), hashed.order
        check_queried_keys(query.keys, layout.config.name, self._context.task)
        pieces, queries = [], [np.empty(0, dtype=np.int64)]
        written = ((run, *matches(run, query, span)) for run in self._written_runs())
        for run, places, rows in (*written, *self._stored.search(span, query, part.value_names)):
            pieces.append(self._rows_at(run, part, places))
            queries.append(order[rows])
        found, asked = self._concat(pieces, part), np.concatenate(queries)
        sorted_ = order_by_time(asked, self._times(found))
        found = self._answer(found.take(pa.array(sorted_)), columns)
        return found.add_column(0, pa.field(QUERY, pa.int64(), nullable=False), pa.array(asked[sorted_]))

    @timed(WRITE)
    def delete(self, keys: Rows) -> None:
        """Remove all rows of the given keys. Rows that are inserted later stay. Other keys are ignored."""
        layout = self._layout
        columns = conform_columns(keys, layout.key_fields, f"delete on {layout.config.name}")
        if not len(columns[0]):
            return
        hashed = HashedKeys.of(layout, columns)
        first, last = hashed.keys[hashed.order[[0, -1]]].tolist()
        check_written_keys(KeyRange(first, last), layout.config.name, self._context.task)
        deleted = DeletesLayout.of(layout).run_of(hashed)
        left = [without_places(run, hidden_places(run, [deleted])) for run in self._written_runs()]
        self._sorted = [run for run in left if len(run)]
        self._stored.delete(deleted)

    def expire(self, before: EventTimeLike) -> None:
        """Drop rows with a time before this one, including such rows that are inserted later."""
        self._expired_before_us = later_us(self._expired_before_us, self._us(before))

    def min_time(self) -> int | None:
        """The earliest time of a row, in microseconds since 1970, or None if there is no row."""
        span = self._span(None, None)
        best = [time for run in self._unsorted_runs() if (time := span.earliest_us(run)) is not None]
        # The files that may begin earliest come first; most of the others are never opened.
        for file, live in sorted(self._stored.live_files(span), key=_earliest_us):
            if best and min(best) <= _earliest_us((file, live)):
                break
            if self._stored.is_whole(file, live):
                best.append(_earliest_us((file, live)))
            else:
                times = event_times(self._stored.run(file, ()))[self._stored.live_places(file, live)]
                best += [int(times.min())] if len(times) else []
        return min(best, default=None)

    def count(self) -> int:
        """The number of rows.

        Opens only files in which some rows expired, may be deleted, or are another subtask's.
        """
        span = self._span(None, None)
        total = sum(len(span.places(run)) for run in self._unsorted_runs())
        for file, live in self._stored.live_files(span):
            whole = self._stored.is_whole(file, live)
            total += file.row_count if whole else len(self._stored.live_places(file, live))
        return total

    def scan(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows, keys then values, some at a time, in no particular order.

        `columns` as in `rows_between`.
        """
        span, part = self._span(None, None), self._part(columns)
        written, stored = self._unsorted_runs(), list(self._stored.live_files(span))
        runs = [(run, span, NOTHING) for run in written]
        files = (
            (self._stored.run(file, part.value_names), live, self._stored.hidden_places(file))
            for file, live in stored
        )
        for run, live, hidden in chain(runs, files):
            for rows in self._pieces(run, part, live, hidden):
                yield from self._answer(rows, columns).to_batches()

    def stored_part(self, keys: KeyRange, columns: Sequence[str] | None = None) -> TimeKeyView:
        """The stored rows with routing keys in a range."""
        part = copy(self)
        part._stored, part._appended, part._sorted = self._stored.clip_to(keys, columns), [], []
        return part

    def expired_rows(self, rows: pa.Table, earlier: ScannedView) -> np.ndarray:
        """Which rows of an earlier view are behind the time before which rows have expired."""
        return self._times(rows) < self._span(None, None).first_us

    def to_pylist(self) -> list[dict[str, Any]]:
        """All rows as dicts, keys then values. For tests and tools."""
        return [row for batch in self.scan() for row in batch.to_pylist()]

    def checkpoint_into(self, checkpointer: EpochCheckpointer) -> None:
        """Hand over what was written since the last checkpoint."""
        checkpointer = self._in_flight = require_checkpointer(checkpointer, TimeKeyCheckpointer)
        checkpointer.expire(self._expired_before_us)
        if (deleted := self._stored.deleted) is not None:
            checkpointer.delete_keys(deleted)
        span = self._span(None, None).since(checkpointer.retained_from_us)
        live = [rows_within(run, span) for run in self._unsorted_runs()]
        if row_count := sum(map(len, live)):
            live += self._stored.absorb_into(checkpointer, row_count)
            checkpointer.insert_data(merge_time_runs(live, self._layout).rows)

    def begin_next_epoch(self, files: TableFiles, context: TableContext) -> None:
        """Continue with the next epoch."""
        written = {} if self._in_flight is None else self._in_flight.written
        self._stored = self._stored.for_next_epoch(files, context, written)
        self._context = context
        self._expired_before_us = files.expired_before_us
        self._appended, self._sorted = [], []
        self._in_flight = None

    def forget_before(self, min_epoch: Epoch) -> None:
        """Close runs that are open only for earlier epochs."""
        self._stored.forget_before(min_epoch)

    def _us(self, time: EventTimeLike) -> int:
        config = self._layout.config
        types = {column.name: column.type for column in config.value_columns}
        return event_time_us(time, types[str(config.time_column)])

    def _span(self, start: EventTimeLike | None, end: EventTimeLike | None) -> TimeSpan:
        """The part of the given span in which rows are alive."""
        span = TimeSpan() if end is None else TimeSpan(before_us=self._us(end))
        span = span.since(None if start is None else self._us(start))
        retained = retained_from_us(self._layout.config, self._context)
        return span.since(retained).since(self._expired_before_us)

    def _written_runs(self) -> list[Run]:
        """The rows of this epoch, sorted.

        Runs of similar size are merged, as stored ones are, so that an epoch of many small batches
        does not search many small runs.
        """
        runs = self._sorted
        if self._appended:
            runs.insert(0, merge_time_runs(self._appended, self._layout))
            self._appended = []
        merge_similar(runs, lambda pair: merge_time_runs(pair, self._layout))
        return runs

    def _unsorted_runs(self) -> list[Run]:
        """The rows of this epoch in any order, dead ones included, for what does not search."""
        return [*self._sorted, *self._appended]

    def _part(self, columns: Sequence[str] | None) -> RunLayout:
        """The layout with the named columns, and the time, which rows are found and sorted by."""
        return self._layout.for_values(columns)

    def _rows_in(self, run: Run, part: RunLayout, span: TimeSpan, hidden: np.ndarray = NOTHING) -> pa.Table:
        places = live_places(run, span, hidden)
        if len(places) == len(run):
            return self._declared_columns(run.rows, part)
        return self._rows_at(run, part, places)

    def _rows_at(self, run: Run, part: RunLayout, places: np.ndarray) -> pa.Table:
        return self._declared_columns(run.rows.select(part.row_schema.names).take(pa.array(places)), part)

    def _declared_columns(self, rows: pa.Table, part: RunLayout) -> pa.Table:
        """The declared columns. A very large run holds its text with 64-bit offsets."""
        return narrow_text(rows.select(part.row_schema.names), _row_schema(part))

    def _concat(self, pieces: list[pa.Table], part: RunLayout) -> pa.Table:
        return combine_chunks(pa.concat_tables([_row_schema(part).empty_table(), *pieces]))

    def _answer(self, rows: pa.Table, columns: Sequence[str] | None) -> pa.Table:
        """Keys and the named value columns, without a time that was not asked for."""
        return rows if columns is None else rows.select([*self._layout.key_names, *columns])

    def _pieces(self, run: Run, part: RunLayout, live: TimeSpan, hidden: np.ndarray) -> Iterator[pa.Table]:
        for start in range(0, len(run), SLICE_ROWS):
            stop = min(len(run), start + SLICE_ROWS)
            first, last = np.searchsorted(hidden, [start, stop])
            yield self._rows_in(run.slice(start, stop), part, live, hidden[first:last] - start)

    def _times(self, rows: pa.Table) -> np.ndarray:
        column: np.ndarray = rows.column(str(self._layout.config.time_column)).cast(pa.int64()).to_numpy()
        return column


def _row_schema(part: RunLayout) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in part.row_schema])


def _earliest_us(candidate: tuple[FileRef, TimeSpan]) -> int:
    """No live row of a file is earlier."""
    file, live = candidate
    return live.first_us if file.times is None else max(live.first_us, file.times.first_us)
