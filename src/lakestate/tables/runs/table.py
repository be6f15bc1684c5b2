"""What tables of runs have in common: declaration, layout, routing, migration."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.metadata import Column, TableConfig, TableFiles
from lakestate.protocol.values import FileRef
from lakestate.tables.arrow.schema import columns_of
from lakestate.tables.context import TableContext
from lakestate.tables.contract import Table, View
from lakestate.tables.hashing.routing import routing_keys
from lakestate.tables.migration.migrations import (
    Migration,
    check_migrations,
    count_migrated_rows,
    upgrade_of,
    versions_covered,
)
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs.file_check import check_run_file
from lakestate.tables.runs.files import Upgrade, forget_runs, open_run
from lakestate.tables.runs.layout import Hash, RunLayout
from lakestate.tables.runs.partial_read import key_pieces, narrow_range
from lakestate.tables.runs.run import Run


class ScannedView(View):
    """A view that can be read from one end to the other, also in pieces of the key space."""

    _lifecycle: ClassVar[frozenset[str]] = frozenset({"expired_rows", "stored_part"})

    @abstractmethod
    def scan(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows, keys then values, or those that `columns` names, some at a time."""

    @abstractmethod
    def expired_rows(self, rows: pa.Table, earlier: ScannedView) -> np.ndarray:
        """Which of the rows that an earlier view had, and this one has not, expired. The others were deleted.

        A row that was deleted after its time had passed counts as expired if nothing is stored about it.
        """

    @abstractmethod
    def stored_part(self, keys: KeyRange, columns: Sequence[str] | None = None) -> ScannedView:
        """The stored rows with routing keys in a range, to be scanned with these value columns.

        Row groups are opened for the part alone.
        """


class RunTable(Table):
    """A table of key and value columns, partitioned by key range."""

    _lifecycle: ClassVar[frozenset[str]] = frozenset({"layout", "open_file", "routing_keys_in", "upgrade"})
    _hash: Hash = staticmethod(routing_keys)
    """Tests replace it, to make keys collide."""

    def __init__(
        self,
        name: str | None,
        key: str | pa.Schema,
        values: tuple[Column, ...],
        route_by: Sequence[str] | None,
        *,
        version: int,
        migrations: Sequence[Migration],
        description: str,
        meanings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name)
        self._keys = _parse_key_columns(key)
        values = tuple(replace(column, meaning=(meanings or {}).get(column.name, "")) for column in values)
        self._values = values
        self._route_by = _require_route(route_by, self._keys)
        self._version = version
        self._migrations = tuple(migrations)
        self._description = description
        _check_distinct(self._keys, values)
        check_migrations(self._migrations, version, self._keys, values)

    def _base_config(self) -> TableConfig:
        """The part of the declaration that all tables of runs share."""
        return TableConfig(
            name=self.name,
            table_type=self.table_type,
            state_version=self._version,
            description=self._description,
            key_columns=self._keys,
            value_columns=self._values,
            routing_columns=self._route_by,
        )

    @property
    def migrates_from(self) -> frozenset[int]:
        """The older versions with a complete chain of migrations."""
        return versions_covered(self._migrations, self._version)

    @cached_property
    def layout(self) -> RunLayout:
        """The layout of rows in this table's runs."""
        return RunLayout(self.config, self._hash)

    @property
    def upgrade(self) -> Upgrade:
        """Brings the rows of a file of an older version to this one."""
        return upgrade_of(self.layout, self._migrations)

    @classmethod
    def from_config(cls, config: TableConfig) -> Self:
        """The table of a stored declaration."""
        table = cls.__new__(cls)
        Table.__init__(table, config.name)
        table.__dict__["config"] = config
        table._migrations = ()
        table._version = config.state_version
        return table

    def stored_rows(self, files: TableFiles, context: TableContext) -> pa.RecordBatchReader:
        """All rows, keys then values. About one row group of each file is in memory at a time."""
        return self.stored_columns(files, context, self.layout.row_schema.names)

    def stored_columns(
        self,
        files: TableFiles,
        context: TableContext,
        columns: Sequence[str],
        routing_keys: np.ndarray | None = None,
    ) -> pa.RecordBatchReader:
        """Some columns. Of a large file, others are not fetched, nor row groups without a wanted key."""
        schema = pa.schema([self.layout.row_schema.field(name).with_nullable(True) for name in columns])
        return pa.RecordBatchReader.from_batches(
            schema, self._stored_batches(files, context, columns, routing_keys)
        )

    def _stored_batches(
        self,
        files: TableFiles,
        context: TableContext,
        columns: Sequence[str],
        routing_keys: np.ndarray | None,
    ) -> Iterator[pa.RecordBatch]:
        view = self.open_view(files, context)
        values = [name for name in self.layout.value_names if name in columns]
        for keys in key_pieces(files.files):
            wanted = keys if routing_keys is None else narrow_range(keys, routing_keys)
            if wanted is not None:
                for batch in view.stored_part(wanted, values).scan(values):
                    yield batch.select(columns)

    def routing_keys_of(self, keys: Mapping[str, pa.Array]) -> np.ndarray | None:
        """The routing keys, if all columns that rows are routed by are given."""
        routing = self.config.routing_columns
        if not set(routing) <= set(keys):
            return None
        return self.layout.hash([keys[name] for name in routing])

    def routing_keys_in(self, files: Sequence[FileRef], context: TableContext) -> np.ndarray:
        """The routing keys that these files have rows for, removals included, ascending, each once."""
        found = [self.open_file(file, context).keys for file in files]
        return np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *found]))

    def open_file(self, file: FileRef, context: TableContext) -> Run:
        """The rows of one file, with at least their keys."""
        return open_run(file, self.layout, context, self.upgrade, ())

    @abstractmethod
    def open_view(self, files: TableFiles, context: TableContext) -> ScannedView:
        """The state that these files hold."""

    def forget_files(self, files: Sequence[FileRef], context: TableContext) -> None:
        """Remove these runs from the host's cache."""
        forget_runs(files, self.layout, context)

    def check_file(self, file: FileRef, context: TableContext) -> None:
        """Raise if a file is not what its reference says."""
        check_run_file(file, self.layout, context)

    def check_rows(self, rows: pa.Table, identity: CheckpointParquetMetadata, shown: str) -> int:
        """The number of rows of a file that were migrated. Raises what reading would raise."""
        return count_migrated_rows(self.layout, self._migrations, rows, identity, shown)


def check_timestamp(values: Sequence[Column], name: str, summary: str, action: str | None = None) -> None:
    """Refuse a column by which rows expire unless it is a timestamp among the value columns."""
    types = {column.name: column.type for column in values}
    if types.get(name) not in ("timestamp", "timestamp_ntz"):
        raise InvalidInputError(
            summary,
            object_name=name,
            found=types.get(name, "no such column"),
            expected="timestamp or timestamp_ntz",
            action=action,
        )


def _parse_key_columns(key: str | pa.Schema) -> tuple[Column, ...]:
    """The columns of a key, which must be of plain types."""
    columns = columns_of(key, what="key")
    nested = [str(column) for column in columns if "<" in column.type]
    if nested:
        raise InvalidInputError(
            "a key column must be of a plain type", found=", ".join(nested), action="use its fields as keys"
        )
    return columns


def _require_route(route_by: Sequence[str] | None, keys: Sequence[Column]) -> tuple[str, ...]:
    """The columns that rows are routed by: all key columns, or the given ones of them."""
    names = [column.name for column in keys]
    route = tuple(names if route_by is None else route_by)
    if not route or any(name not in names for name in route):
        raise InvalidInputError("rows are routed by key columns", found=route, expected=f"some of {names}")
    return route


def _check_distinct(keys: Sequence[Column], values: Sequence[Column]) -> None:
    both = {column.name for column in keys} & {column.name for column in values}
    if both:
        raise InvalidInputError("a column is both key and value", found=", ".join(sorted(both)))
