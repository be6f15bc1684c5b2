"""What changed in a state table between two epochs, as rows that say what happened to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from lakestate.errors import IncompatibleStateError
from lakestate.inspection.changes.difference import Difference, difference_by_key, difference_of_bags
from lakestate.inspection.changes.spans import Part, Span, spans_of
from lakestate.inspection.row_filter import RowFilter, require_columns
from lakestate.inspection.row_source import RowSource
from lakestate.inspection.state import StateSource
from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.values import Epoch
from lakestate.row_kind import AFTER, BEFORE, CHANGE, DELETE, INSERT
from lakestate.tables.contract import Table
from lakestate.tables.runs.table import RunTable, ScannedView

EXPIRED = "_expired"
"""The column that tells rows that expired from those that were deleted."""

_WIDE_INTEGER = pa.decimal128(20, 0)


class StateChanges(RowSource):
    """The rows that differ between two epochs, with `_change` and `_expired` as last columns.

    `_change` is `insert`, `delete`, or `update_preimage` and `update_postimage`, the row before and after
    an update, one right after the other. A row that expired is a `delete` with `_expired` true. A row that
    was written again with the same values is not a change, nor is what came and went between the epochs.
    Rows of a `TimeKeyTable` are never updated, and equal rows are counted. Rows have no particular order.
    """

    def __init__(self, before: StateSource | None, after: StateSource | None) -> None:
        self.before, self.after = before, after
        self._check_versions()

    def __repr__(self) -> str:
        first, last = self.epochs
        return f"StateChanges({self.name!r}, {first} to {last})"

    def _repr_html_(self) -> str:
        return f"<p>{self!r}</p>"

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.table.name

    @property
    def table(self) -> Table:
        """The declaration of the table."""
        return self._known.table

    def clip_to(self, keys: KeyRange) -> StateChanges:
        """The same for some of the keys."""
        sides = (None if side is None else side.clip_to(keys) for side in (self.before, self.after))
        return StateChanges(*sides)

    @property
    def epochs(self) -> tuple[Epoch | None, Epoch | None]:
        """The epochs that are compared; None for one in which there is no such table."""
        first, last = (None if side is None else side.manifest.epoch for side in (self.before, self.after))
        return first, last

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return tuple(column.name for column in self._known.table.config.key_columns)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the table, and those that say what happened to a row."""
        return pa.schema([*self.row_schema, pa.field(CHANGE, pa.string()), pa.field(EXPIRED, pa.bool_())])

    @cached_property
    def row_schema(self) -> pa.Schema:
        """The columns of the table."""
        schemas = [side.schema for side in (self.before, self.after) if side is not None]
        return pa.schema(map(_wider_field, schemas[0], schemas[-1]))

    @property
    def _known(self) -> StateSource:
        known = self.before if self.after is None else self.after
        assert known is not None
        return known

    def _read(self, rows: RowFilter, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        names = self.schema.names if columns is None else require_columns(columns, self.schema, self.name)
        schema = pa.schema([self.schema.field(name) for name in names])
        batches = (rows.apply(batch) for batch in self._batches(rows.keys))
        return pa.RecordBatchReader.from_batches(
            schema, (batch.select(names) for batch in batches if batch.num_rows)
        )

    def can_have(self, rows: RowFilter) -> bool:
        """False if the files of both epochs show that no row of a filter has changed."""
        return not self.is_in_runs or any(True for _ in self._pieces(rows.keys))

    def _batches(self, keys: Mapping[str, pa.Array] | None) -> Iterator[pa.RecordBatch]:
        with self._known.guard(), (self.before or self._known).guard():
            if not self.is_in_runs:
                yield from self._whole_difference()
                return
            for span, piece in self._pieces(keys):
                yield from self._piece_difference(span, piece).to_batches()

    @property
    def is_in_runs(self) -> bool:
        """Whether the table can be compared in pieces."""
        return isinstance(self._known.table, RunTable)

    def _pieces(self, keys: Mapping[str, pa.Array] | None) -> Iterator[tuple[Span, KeyRange]]:
        routing = None if keys is None else self._known.table.routing_keys_of(keys)
        wanted = None if routing is None else np.unique(routing)
        for span in spans_of(self.before, self.after):
            for piece in span.pieces(wanted):
                yield span, piece

    def _piece_difference(self, span: Span, piece: KeyRange) -> pa.Table:
        old_view, before = self._side_rows(span.before, piece)
        new_view, after = self._side_rows(span.after, piece)
        found = self._difference(before, after)
        gone = before.take(pa.array(found.deleted))
        expired = np.zeros(gone.num_rows, dtype=bool)
        if new_view is not None and old_view is not None and gone.num_rows:
            expired = new_view.expired_rows(gone, old_view)
        return self._rows(before, after, found, expired)

    def _side_rows(self, part: Part | None, piece: KeyRange) -> tuple[ScannedView | None, pa.Table]:
        return (None, self.row_schema.empty_table()) if part is None else part.rows(piece)

    def _whole_difference(self) -> Iterator[pa.RecordBatch]:
        """The difference of a table that is small, or whose type does not tell which files hold a key."""
        before, after = (
            self.row_schema.empty_table() if side is None else side.reader().read_all().cast(self.row_schema)
            for side in (self.before, self.after)
        )
        found = self._difference(before, after)
        return iter(self._rows(before, after, found, np.zeros(len(found.deleted), dtype=bool)).to_batches())

    def _difference(self, before: pa.Table, after: pa.Table) -> Difference:
        if self._known.table.table_type.is_append_only:
            return difference_of_bags(before, after)
        return difference_by_key(before, after, self.key_columns)

    def _rows(self, before: pa.Table, after: pa.Table, found: Difference, expired: np.ndarray) -> pa.Table:
        """The rows that differ, the two rows of an update one after the other."""
        count = len(found.old)
        order = np.arange(2 * count).reshape(2, count).T.ravel()
        updates = pa.concat_tables([before.take(pa.array(found.old)), after.take(pa.array(found.new))])
        pieces = [
            _mark(after.take(pa.array(found.inserted)), [INSERT] * len(found.inserted)),
            _mark(before.take(pa.array(found.deleted)), [DELETE] * len(found.deleted), expired),
            _mark(updates.take(pa.array(order)), [BEFORE, AFTER] * count),
        ]
        return pa.concat_tables(pieces).cast(self.schema)

    def _check_versions(self) -> None:
        if self.before is None or self.after is None:
            return
        old, new = self.before.table.config, self.after.table.config
        if (old.key_columns, old.value_columns) != (new.key_columns, new.value_columns):
            raise IncompatibleStateError(
                f"table {self.name} has other columns in these epochs",
                object_name=f"epochs {self.before.manifest.epoch} and {self.after.manifest.epoch}",
                found=", ".join(map(str, (*old.key_columns, *old.value_columns))),
                expected=", ".join(map(str, (*new.key_columns, *new.value_columns))),
                action="pass the declared table, with its migrations, instead of its name",
            )


def _mark(rows: pa.Table, changes: Sequence[str], expired: np.ndarray | None = None) -> pa.Table:
    flags = np.zeros(rows.num_rows, dtype=bool) if expired is None else expired
    marked = rows.append_column(CHANGE, pa.array(changes, pa.string()))
    return marked.append_column(EXPIRED, pa.array(flags))


def _wider_field(one: pa.Field, other: pa.Field) -> pa.Field:
    """A column of Python integers is wider in an epoch that has one beyond 64 bits."""
    return pa.field(one.name, one.type if one.type == other.type else _WIDE_INTEGER)
