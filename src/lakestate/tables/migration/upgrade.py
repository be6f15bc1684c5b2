"""The rows of a data file of an older state version, converted to the declared columns.

User code sees the user's columns of rows that exist. The columns that Lakestate adds stay as they are,
so that a migrated file is sorted and routed as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import IncompatibleStateError, InvalidInputError
from lakestate.protocol.compatibility import widens
from lakestate.tables.arrow.lossless_cast import cast_chunks_losslessly
from lakestate.tables.arrow.schema import ddl_of
from lakestate.tables.migration.steps import Migration, name_before_all
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs.layout import HASH, KEY, REMOVED, UPDATED, RunLayout

_INTERNAL = frozenset({KEY, HASH, REMOVED, UPDATED})


@dataclass(frozen=True, slots=True)
class TableUpgrade:
    """The steps of one table, ready for any of its files."""

    layout: RunLayout
    steps: Mapping[int, Migration]
    """By the version that each starts from."""

    def __call__(self, rows: pa.Table, identity: CheckpointParquetMetadata, shown: str) -> pa.Table:
        """The rows of a file in the layout's columns, or IncompatibleStateError naming the file."""
        chain = self._chain(identity.state_version, shown)
        if chain:
            return self._arrange(rows, self._migrate(rows, chain, shown), shown)
        if _same_columns(rows.schema, self.layout.schema):
            return rows
        users = rows.select(_user_names(rows))
        return self._arrange(rows, self._evolve(users, shown) if self.layout.config.evolves else users, shown)

    def _evolve(self, rows: pa.Table, shown: str) -> pa.Table:
        """The columns of now: null where the file has none, cast where it is narrower, without those gone."""
        known = set(self.layout.row_schema.names)
        columns = {name: rows[name] for name in rows.column_names if name in known}
        for column, field in zip(self.layout.config.value_columns, self.layout.value_fields, strict=True):
            if not column.meaning:
                continue
            if column.name in columns:
                columns[column.name] = self._column(columns[column.name], field, shown)
            else:
                columns[column.name] = pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
        return pa.table(columns)

    def _chain(self, stored: int, shown: str) -> list[Migration]:
        config = self.layout.config
        versions = range(stored, config.state_version)
        missing = [version for version in versions if version not in self.steps]
        if stored <= config.state_version and not missing:
            return [self.steps[version] for version in versions]
        raise IncompatibleStateError(
            f"data file of another state version of table {config.name}",
            object_name=shown,
            found=f"version {stored}",
            expected=f"version {config.state_version}, or an older one with a migration",
            action=f"declare a migration from version {missing[0]}" if missing else "run the newer code",
        )

    def _migrate(self, rows: pa.Table, chain: Sequence[Migration], shown: str) -> pa.Table:
        """The user's columns after all steps. Removed rows have null values."""
        names = _user_names(rows)
        keys = names[: len(self.layout.key_names)]
        if len(keys) < len(self.layout.key_names):
            raise self.layout.mismatch(rows.schema, shown)
        live = _live(rows)
        given = rows.select(names) if live is None else rows.select(names).filter(live)
        if given.num_rows:
            result = self._apply_steps(given, keys, chain, shown)
            self._check_times(given, result, chain, shown)
            values = result.columns[len(keys) :]
        else:
            live, values = None, [pa.nulls(rows.num_rows, field.type) for field in self.layout.value_fields]
        if live is not None:
            places = _places(live)
            values = [column.combine_chunks().take(places) for column in values]
        # The file's own keys: steps are only known to preserve those of live rows.
        return pa.table([*rows.select(keys).columns, *values], names=self.layout.row_schema.names)

    def _apply_steps(
        self, rows: pa.Table, keys: Sequence[str], chain: Sequence[Migration], shown: str
    ) -> pa.Table:
        for step in chain:
            target = self.layout.row_schema if step is chain[-1] else None
            try:
                rows = step.apply(rows, keys, target)
            except Exception as cause:
                raise self._step_error(step, shown, cause) from cause
            keys = rows.column_names[: len(keys)]
        return self._conform(rows, shown)

    def _conform(self, rows: pa.Table, shown: str) -> pa.Table:
        """The rows in the declared columns, types and order."""
        declared = self.layout.row_schema
        found, expected = rows.column_names, declared.names
        missing = [name for name in expected if name not in found]
        extra = [name for name in found if name not in expected]
        key_count = len(self.layout.key_names)
        if missing or extra or found[:key_count] != expected[:key_count]:
            wrong = [f"no column {name}" for name in missing] + [f"extra column {name}" for name in extra]
            raise self._misfit_error(
                shown, ", ".join(wrong) or f"key {', '.join(found[:key_count])}", declared
            )
        columns = [self._column(rows.column(field.name), field, shown) for field in declared]
        return pa.table(columns, names=expected)

    def _column(self, column: pa.ChunkedArray, field: pa.Field, shown: str) -> pa.ChunkedArray:
        if not column.type.equals(field.type, check_metadata=True):
            if not _fits(column.type, field.type):
                raise self._misfit_error(shown, f"column {field.name} of type {column.type}", field.type)
            try:
                column = cast_chunks_losslessly(column, field, "migrated rows")
            except InvalidInputError as cause:
                raise self._misfit_error(shown, f"column {field.name}: {cause}", field.type) from cause
        if column.null_count and not field.nullable:
            raise self._misfit_error(shown, f"column {field.name} with {column.null_count} nulls", "no null")
        return column

    def _check_times(self, before: pa.Table, after: pa.Table, chain: Sequence[Migration], shown: str) -> None:
        """Refuse changed event times: metadata states the times of a file, and rows are sorted by them."""
        config = self.layout.config
        if not config.table_type.is_ordered_by_time or config.time_column is None:
            return
        name = name_before_all(config.time_column, chain)
        if name not in before.column_names or not _same_times(before[name], after[config.time_column]):
            raise self._misfit_error(shown, f"other times in column {config.time_column}", "unchanged times")

    def _arrange(self, rows: pa.Table, users: pa.Table, shown: str) -> pa.Table:
        """The user's columns and Lakestate's own, in the order of the layout."""
        columns = dict(zip(users.column_names, users.columns, strict=True))
        columns |= {name: rows.column(name) for name in rows.column_names if name in _INTERNAL}
        if self.layout.has_updated:
            columns.setdefault(UPDATED, pa.chunked_array([pa.repeat(_never(), rows.num_rows)]))
        else:
            columns.pop(UPDATED, None)
        schema = self.layout.schema
        if columns.keys() != set(schema.names):
            raise self.layout.mismatch(rows.schema, shown)
        arranged = pa.table({name: columns[name] for name in schema.names})
        if not _same_columns(arranged.schema, schema):
            raise self.layout.mismatch(rows.schema, shown)
        return pa.Table.from_arrays(arranged.columns, schema=schema)

    def _step_error(self, step: Migration, shown: str, cause: Exception) -> IncompatibleStateError:
        version = step.from_version
        return IncompatibleStateError(
            f"table {self.layout.config.name}: migration from state version {version} to "
            f"{version + 1} failed",
            object_name=shown,
            found=f"{type(cause).__name__}: {cause}",
            action="correct the migration; nothing was changed",
        )

    def _misfit_error(self, shown: str, found: str, expected: object) -> IncompatibleStateError:
        shape = (
            ", ".join(f"{field.name} {field.type}" for field in expected)
            if isinstance(expected, pa.Schema)
            else expected
        )
        return IncompatibleStateError(
            f"migrated rows do not fit table {self.layout.config.name}",
            object_name=shown,
            found=found,
            expected=shape,
            action="correct the migration, or the declared columns; nothing was changed",
        )


def _user_names(rows: pa.Table) -> list[str]:
    return [name for name in rows.column_names if name not in _INTERNAL]


def _same_columns(found: pa.Schema, expected: pa.Schema) -> bool:
    return bool(found.names == expected.names and found.types == expected.types)


def _live(rows: pa.Table) -> pa.ChunkedArray | None:
    """Which rows exist; None if all do."""
    if REMOVED not in rows.column_names or not pc.any(rows.column(REMOVED)).as_py():
        return None
    return pc.invert(rows.column(REMOVED))


def _places(live: pa.ChunkedArray) -> pa.Array:
    """For each row, its place among the live ones; null for the others."""
    mask = live.combine_chunks().to_numpy(zero_copy_only=False)
    return pa.array(np.cumsum(mask) - 1, mask=~mask)


def _fits(found: pa.DataType, declared: pa.DataType) -> bool:
    """True for the same type in another representation, or a narrower type."""
    if pa.types.is_null(found):
        return True
    try:
        return widens(ddl_of(found), ddl_of(declared))
    except InvalidInputError:
        return False


def _same_times(before: pa.ChunkedArray, after: pa.ChunkedArray) -> bool:
    if not pa.types.is_timestamp(before.type):
        return False
    return bool(before.cast(pa.int64()).equals(after.cast(pa.int64())))


def _never() -> pa.Scalar:
    """When a row from before its table had a time to live was written: it never expires until written again.

    The real time is not known, and a guess would lose the row, or differ between two readings of one
    file. Not a constant of the module: making an Arrow value imports pandas, which takes seconds.
    """
    return pa.scalar(np.iinfo(np.int64).max, pa.timestamp("us", tz="UTC"))
