"""`KeyedView`: what operator code holds to read and write a `KeyedTable`.

A view is the runs written in this epoch and the stored ones, newest first. Reads see writes at once.
The cost of a call depends on the number of rows in it, not on the size of the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.observability.time_parts import LOOKUP, WRITE, timed
from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.metadata import TableFiles
from lakestate.protocol.values import Epoch
from lakestate.tables.arrow.conform import conform_columns
from lakestate.tables.arrow.wide_text import combine_chunks, narrow_text
from lakestate.tables.context import TableContext, expired_before_us
from lakestate.tables.contract import EpochCheckpointer, View, require_checkpointer
from lakestate.tables.keyed.newest import NewestRows, newest_rows
from lakestate.tables.keyed.prefix import PrefixQuery
from lakestate.tables.runs.checkpointer import RunCheckpointer
from lakestate.tables.runs.files import Upgrade
from lakestate.tables.runs.layout import HASH, KEY, QUERY, REMOVED, UPDATED, Rows, RunLayout
from lakestate.tables.runs.lookup import ABSENT, HashedKeys, positions
from lakestate.tables.runs.merge import key_slices, merge_runs, merge_similar, sort_keep_last
from lakestate.tables.runs.ownership import check_queried_keys, check_written_keys
from lakestate.tables.runs.run import Run
from lakestate.tables.runs.run_set import RunSet
from lakestate.tables.runs.table import ScannedView


class KeyedView(ScannedView):
    """One subtask's rows of a `KeyedTable`.

    `get` returns rows in the order of the given keys, with nulls where a key has no row. `put` and
    `delete` take effect at once and become durable with the next checkpoint. All of them refuse keys
    of another subtask.
    """

    QUERY: ClassVar[str] = QUERY
    """The name of the first column that `get_prefix` returns."""

    def __init__(
        self, layout: RunLayout, files: TableFiles, context: TableContext, upgrade: Upgrade | None = None
    ) -> None:
        self._layout = layout
        self._context = context
        self._stored = RunSet(files.files, layout, context, upgrade)
        self._written: list[Run] = []
        self._in_flight: RunCheckpointer | None = None
        self._hashed: HashedKeys | None = None
        """The keys of the last lookup, which are usually put next."""

    def get(self, keys: Rows, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The values of keys, one row for each; null where a key has no row.

        `columns` are the value columns to return. Of a large file, others are not fetched.
        """
        return self.lookup(keys, columns)[1]

    def contains(self, keys: Rows) -> pa.BooleanArray:
        """For each key, whether it has a row. Of a large file, only keys are fetched."""
        return self.lookup(keys, ())[0]

    @timed(LOOKUP)
    def lookup(
        self, keys: Rows, columns: Sequence[str] | None = None
    ) -> tuple[pa.BooleanArray, pa.RecordBatch]:
        """For each key, whether it has a row, and its values. `columns` as in `get`."""
        part = self._layout.for_values(columns)
        self._hashed = HashedKeys.of(self._layout, self._key_columns(keys, "get"))
        query, order = self._hashed.query(), self._hashed.order
        check_queried_keys(query.keys, self._layout.config.name, self._context.task)
        found = _Found(self._value_schema(columns), len(query))
        open_rows: np.ndarray | None = None
        for run in self._runs(part):
            asked = query if open_rows is None else query.take(open_rows)
            if not len(asked):
                break
            places = positions(run, asked)
            hit = np.flatnonzero(places != ABSENT)
            if not len(hit):
                continue
            rows = np.arange(len(query)) if open_rows is None else open_rows
            found.add(run, places[hit], rows[hit], self._live(run, places[hit]))
            open_rows = np.delete(rows, hit)
        return found.in_order(order)

    @timed(LOOKUP)
    def get_prefix(self, keys: Rows, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows whose key begins with the given columns, in the order of `keys`.

        `keys` has the first columns of the key, with those that rows are routed by among them. The first
        column of the result, `__query`, is the row number in `keys` that a row belongs to, from 0; then
        come the key columns, and the value columns or those of them that `columns` names.
        """
        part = self._layout.for_values(columns)
        query = PrefixQuery.of(self._layout, keys)
        check_queried_keys(query.keys, self._layout.config.name, self._context.task)
        found = merge_runs([query.candidates(run) for run in self._runs(part)], part)
        live = self._live(found, np.arange(len(found)))
        found = found if live is None else _filter_run(found, live)
        places, rows = query.rows_of(found)
        asked = query.order[rows]
        # Those of one prefix are in order already.
        sorted_ = np.argsort(asked, kind="stable")
        table = self._declared_columns(found, columns).take(pa.array(places[sorted_]))
        field = pa.field(QUERY, pa.int64(), nullable=False)
        return table.add_column(0, field, pa.array(asked[sorted_]))

    @timed(WRITE)
    def put(self, rows: Rows) -> None:
        """Write rows. Of several rows with the same key, the last one is kept."""
        layout = self._layout
        keys = self._key_columns(rows, "put")
        values = conform_columns(rows, layout.value_fields, f"put into {layout.config.name}")
        self._write(keys, values, removed=False)

    @timed(WRITE)
    def delete(self, keys: Rows) -> None:
        """Remove keys. A key without a row is ignored."""
        columns = self._key_columns(keys, "delete")
        count = len(columns[0])
        values = [pa.nulls(count, field.type) for field in self._layout.value_fields]
        self._write(columns, values, removed=True)

    def scan(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows, keys then values, in order of routing key, some at a time. `columns` as in `get`."""
        for run in self._live_slices(self._layout.for_values(columns)):
            yield from self._declared_columns(run, columns).to_batches()

    def stored_part(self, keys: KeyRange, columns: Sequence[str] | None = None) -> KeyedView:
        """The stored rows with routing keys in a range."""
        part = copy(self)
        part._stored, part._written = self._stored.clip_to(keys, columns), []
        return part

    def expired_rows(self, rows: pa.Table, earlier: ScannedView) -> np.ndarray:
        """Which rows of an earlier view, whose keys have no row now, expired.

        What is stored for the key now decides. If nothing is, the time of the earlier row does.
        """
        cutoff = expired_before_us(self._layout.config, self._context)
        if cutoff is None or not isinstance(earlier, KeyedView):
            return np.zeros(rows.num_rows, dtype=bool)
        keys = HashedKeys.of(self._layout, self._key_columns(rows, "get"))
        now, before = self._newest_rows(keys), earlier._newest_rows(keys)
        return np.where(now.is_stored, ~now.is_removed, before.times_us < cutoff)

    def _newest_rows(self, keys: HashedKeys) -> NewestRows:
        return newest_rows(self._runs(self._layout.for_values(())), keys)

    def count(self) -> int:
        """The number of keys. Reads all keys: do not call it for every batch."""
        return sum(len(run) for run in self._live_slices(self._layout.for_values(())))

    def to_pylist(self) -> list[dict[str, Any]]:
        """All rows as dicts, keys then values. For tests and tools."""
        return [row for batch in self.scan() for row in batch.to_pylist()]

    def checkpoint_into(self, checkpointer: EpochCheckpointer) -> None:
        """Hand over what was written since the last checkpoint."""
        checkpointer = self._in_flight = require_checkpointer(checkpointer, RunCheckpointer)
        if not self._written:
            return
        run = merge_runs(self._written, self._layout)
        absorbed = [run for _, run in checkpointer.absorb(len(run), self._stored)]
        run = merge_runs([run, *absorbed], self._layout)
        if not checkpointer.carries_files and run.removed is not None:
            # There is nothing older to hide, so a removed key leaves no trace.
            run = _filter_run(run, ~run.removed)
        checkpointer.insert_data(run.rows)

    def begin_next_epoch(self, files: TableFiles, context: TableContext) -> None:
        """Continue with the next epoch."""
        written = {} if self._in_flight is None else self._in_flight.written
        self._stored = self._stored.for_next_epoch(files.files, context, written)
        self._context = context
        self._written = []
        self._in_flight = None

    def forget_before(self, min_epoch: Epoch) -> None:
        """Close runs that are open only for earlier epochs."""
        self._stored.forget_before(min_epoch)

    def _runs(self, part: RunLayout) -> Iterator[Run]:
        """All runs, newest first, in a layout with some of the value columns."""
        yield from (run.select(part) for run in self._written)
        yield from (run.select(part) for run in self._stored.runs(part.value_names))

    def _key_columns(self, rows: Rows, verb: str) -> list[pa.Array]:
        return conform_columns(rows, self._layout.key_fields, f"{verb} on {self._layout.config.name}")

    def _write(self, keys: Sequence[pa.Array], values: Sequence[pa.Array], *, removed: bool) -> None:
        count = len(keys[0])
        if not count:
            return
        if self._hashed is None or not self._hashed.are(keys):
            self._hashed = HashedKeys.of(self._layout, keys)
        run = sort_keep_last(self._bag(self._hashed, values, removed), self._hashed.order)
        first, last = self._hashed.keys[self._hashed.order[[0, -1]]].tolist()
        check_written_keys(KeyRange(first, last), self._layout.config.name, self._context.task)
        self._written.insert(0, run)
        merge_similar(self._written, lambda pair: merge_runs(pair, self._layout))

    def _bag(self, hashed: HashedKeys, values: Sequence[pa.Array], removed: bool) -> Run:
        """The rows in the run's columns, not sorted yet."""
        layout, count = self._layout, len(hashed.keys)
        columns: dict[str, pa.Array] = {KEY: pa.array(hashed.keys)}
        if hashed.hashes is not None:
            columns[HASH] = pa.array(hashed.hashes)
        columns |= dict(zip(layout.key_names, hashed.columns, strict=True))
        columns |= dict(zip(layout.value_names, values, strict=True))
        if layout.has_removals:
            columns[REMOVED] = pa.array(np.full(count, removed))
        if layout.has_updated:
            columns[UPDATED] = pa.array(np.full(count, self._context.now_us)).cast(
                pa.timestamp("us", tz="UTC")
            )
        arrays = [columns[name] for name in layout.schema.names]
        rows = pa.Table.from_arrays(arrays, schema=layout.schema)
        return Run(rows, layout)

    def _live(self, run: Run, places: np.ndarray) -> np.ndarray | None:
        """Which of the given rows are neither removed nor expired; None if all are live."""
        removed = run.removed_at(places)
        live = None if removed is None else ~removed
        cutoff = expired_before_us(self._layout.config, self._context)
        if cutoff is not None and run.times_us is not None:
            fresh = run.times_us[places] >= cutoff
            live = fresh if live is None else live & fresh
        return live

    def _live_slices(self, part: RunLayout) -> Iterator[Run]:
        for pieces in key_slices(list(self._runs(part))):
            run = merge_runs(pieces, part)
            live = self._live(run, np.arange(len(run)))
            run = run if live is None else _filter_run(run, live)
            if len(run):
                yield run

    def _value_schema(self, columns: Sequence[str] | None) -> pa.Schema:
        schema = self._layout.value_schema
        return schema if columns is None else pa.schema([schema.field(name) for name in columns])

    def _declared_columns(self, run: Run, columns: Sequence[str] | None) -> pa.Table:
        """Keys, then values. A very large run holds its text with 64-bit offsets."""
        keys = [field.with_nullable(True) for field in self._layout.key_fields]
        schema = pa.schema([*keys, *self._value_schema(columns)])
        return narrow_text(run.rows.select(schema.names), schema)


def renew_rows(view: View, expired_at_us: int) -> None:
    """Remove the rows of a view that had expired by a time, and write all others again with the time now.

    It concerns only tables whose rows live for some processing time, and reads and writes all of them.
    """
    if not isinstance(view, KeyedView):
        return
    config, layout = view._layout.config, view._layout
    if config.ttl_us is None or config.time_column is not None:
        return
    for pieces in list(key_slices(list(view._runs(layout)))):
        run = merge_runs(pieces, layout)
        if run.removed is not None:
            run = _filter_run(run, ~run.removed)
        assert run.times_us is not None
        is_fresh = run.times_us >= expired_at_us - config.ttl_us
        view.delete(view._declared_columns(_filter_run(run, ~is_fresh), None))
        view.put(view._declared_columns(_filter_run(run, is_fresh), None))


class _Found:
    """Rows found in several runs, assembled in the order of the query."""

    def __init__(self, schema: pa.Schema, count: int) -> None:
        self._schema = schema
        self._sources = np.full(count, ABSENT, dtype=np.int64)
        self._pieces: list[list[pa.Array]] = []
        self._taken = 0

    def add(self, run: Run, places: np.ndarray, rows: np.ndarray, live: np.ndarray | None) -> None:
        """Add rows of one run, of which only the live ones have values."""
        if live is not None:
            places, rows = places[live], rows[live]
        indices = pa.array(places)
        # A very large run holds its text with 64-bit offsets.
        self._pieces.append([run.take(field.name, indices).cast(field.type) for field in self._schema])
        self._sources[rows] = np.arange(self._taken, self._taken + len(places))
        self._taken += len(places)

    def in_order(self, order: np.ndarray) -> tuple[pa.BooleanArray, pa.RecordBatch]:
        """The result, in the order in which the keys were given."""
        sources = np.empty_like(self._sources)
        sources[order] = self._sources
        present = sources != ABSENT
        indices = pa.array(sources, mask=~present)
        if not len(self._schema):
            # Arrow takes the number of rows from the first column, and there is none.
            rows = pa.Array.from_buffers(pa.struct([]), len(present), [None])
            return pa.array(present), pa.RecordBatch.from_struct_array(rows)
        columns = [self._column(number, field, indices) for number, field in enumerate(self._schema)]
        return pa.array(present), pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _column(self, number: int, field: pa.Field, indices: pa.Array) -> pa.Array:
        pieces = [piece[number] for piece in self._pieces if len(piece[number])]
        if not pieces:
            return pa.nulls(len(indices), field.type)
        whole = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
        return pc.take(whole, indices)


def _filter_run(run: Run, keep: np.ndarray) -> Run:
    return Run(combine_chunks(run.rows.filter(pa.array(keep))), run.layout)
