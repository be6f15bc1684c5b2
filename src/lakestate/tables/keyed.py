"""`KeyedTable`: one row per key, upserted and deleted, partitioned by key range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import pyarrow as pa

from lakestate.config import duration_us
from lakestate.errors import InvalidInputError
from lakestate.protocol.metadata import Column, TableConfig, TableFiles, TableType
from lakestate.protocol.values import Epoch, TaskInfo
from lakestate.tables.compact_runs import compact_runs
from lakestate.tables.context import TableContext, expired_before_us
from lakestate.tables.keyed_view import KeyedView
from lakestate.tables.layout import Hash, RunLayout
from lakestate.tables.lifecycle import CompactedFiles, CompactionConfig, Table
from lakestate.tables.migration import (
    Migration,
    check_migrations,
    migrated_row_count,
    upgrade_of,
    versions_covered,
)
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.routing import routing_keys
from lakestate.tables.run_checkpointer import RunCheckpointer
from lakestate.tables.run_set import carried, without_expired
from lakestate.tables.schema import columns_of


@dataclass(frozen=True, slots=True)
class Ttl:
    """How long a row lives after it was written.

    By default from the processing time of the epoch that wrote it. With `column`, a timestamp
    among the value columns, from that event time, against the watermark.

    >>> Ttl("1 hour").duration_us
    3600000000
    """

    duration: str
    column: str | None = None

    @property
    def duration_us(self) -> int:
        """The duration in microseconds."""
        return duration_us(self.duration)


class KeyedTable(Table):
    """A map from key columns to value columns.

    >>> totals = KeyedTable("totals", key="user string", value="n bigint, spend double")
    >>> [str(column) for column in totals.config.value_columns]
    ['n bigint', 'spend double']

    `route_by` names the key columns that the pipeline routes by, where the table's key is finer.
    `version` and `migrations` say how state of older versions is read; see `lakestate.Migration`.
    """

    table_type: ClassVar[TableType] = TableType.KEYED

    def __init__(
        self,
        name: str | None = None,
        *,
        key: str | pa.Schema,
        value: str | pa.Schema,
        route_by: Sequence[str] | None = None,
        ttl: Ttl | str | None = None,
        version: int = 1,
        migrations: Sequence[Migration] = (),
        description: str = "",
        _hash: Hash = routing_keys,
    ) -> None:
        super().__init__(name)
        self._keys = checked_key_columns(key)
        self._values = columns_of(value, what="value")
        self._route_by = checked_route(route_by, self._keys)
        self._ttl = Ttl(ttl) if isinstance(ttl, str) else ttl
        self._version = version
        self._migrations = tuple(migrations)
        self._description = description
        self._hash = _hash
        _check_columns(self._keys, self._values, self._ttl)
        check_migrations(self._migrations, version, self._keys, self._values)

    @cached_property
    def config(self) -> TableConfig:
        """The declaration as it is stored."""
        return TableConfig(
            name=self.name,
            table_type=self.table_type,
            state_version=self._version,
            description=self._description,
            key_columns=self._keys,
            value_columns=self._values,
            routing_columns=self._route_by,
            time_column=None if self._ttl is None else self._ttl.column,
            ttl_us=None if self._ttl is None else self._ttl.duration_us,
        )

    @property
    def migrates_from(self) -> frozenset[int]:
        """The older versions with a complete chain of migrations."""
        return versions_covered(self._migrations, self._version)

    @cached_property
    def layout(self) -> RunLayout:
        """How rows lie in this table's runs."""
        return RunLayout(self.config, self._hash)

    @classmethod
    def from_config(cls, config: TableConfig) -> Self:
        """The table of a stored declaration."""
        table = cls.__new__(cls)
        Table.__init__(table, config.name)
        table.__dict__["config"] = config
        table._migrations = ()
        table._version = config.state_version
        table._hash = routing_keys
        return table

    def open_view(self, files: TableFiles, context: TableContext) -> KeyedView:
        """The state that these files hold."""
        return KeyedView(self.layout, files, context, upgrade_of(self.layout, self._migrations))

    def epoch_checkpointer(
        self, epoch: Epoch, previous: TableFiles, context: TableContext
    ) -> RunCheckpointer:
        """Writes new runs in front of those that still count."""
        kept = without_expired(
            carried(previous.files, context), expired_before_us(self.config, context), self._version
        )
        return RunCheckpointer(self.layout, epoch, replace(previous, files=kept), context)

    @classmethod
    def merge_checkpoint_metadata(cls, config: TableConfig, parts: Mapping[int, TableFiles]) -> TableFiles:
        """All files, in order of subtask. Each says which keys of it count, so none is lost or doubled."""
        files = tuple(file for index in sorted(parts) for file in parts[index].files)
        return TableFiles(config.name, config.table_type, files)

    @classmethod
    def subtask_metadata_from_table(
        cls, config: TableConfig, merged: TableFiles, task: TaskInfo
    ) -> TableFiles:
        """The files with keys of a subtask, clipped to them."""
        clipped = (file.clipped_to(task.key_range) for file in merged.files)
        return replace(merged, files=tuple(file for file in clipped if file is not None))

    def check_rows(self, rows: pa.Table, identity: CheckpointParquetMetadata, shown: str) -> int:
        """How many rows of a file were brought to this version; raises what reading would raise."""
        return migrated_row_count(self.layout, self._migrations, rows, identity, shown)

    def compact_data(
        self, files: TableFiles, compaction: CompactionConfig, epoch: Epoch, context: TableContext
    ) -> CompactedFiles | None:
        """Merge neighbouring runs of similar size, dropping what is overwritten, removed or expired."""
        return compact_runs(
            self.layout,
            files,
            compaction,
            epoch,
            context,
            upgrade=upgrade_of(self.layout, self._migrations),
            expired_before_us=expired_before_us(self.config, context),
        )


def checked_key_columns(key: str | pa.Schema) -> tuple[Column, ...]:
    """The columns of a key, which must be of plain types."""
    columns = columns_of(key, what="key")
    nested = [str(column) for column in columns if "<" in column.type]
    if nested:
        raise InvalidInputError(
            "a key column must be of a plain type", found=", ".join(nested), action="use its fields as keys"
        )
    return columns


def checked_route(route_by: Sequence[str] | None, keys: Sequence[Column]) -> tuple[str, ...]:
    """The columns that rows are routed by: all key columns, or the given ones of them."""
    names = [column.name for column in keys]
    route = tuple(names if route_by is None else route_by)
    if not route or any(name not in names for name in route):
        raise InvalidInputError("rows are routed by key columns", found=route, expected=f"some of {names}")
    return route


def _check_columns(keys: Sequence[Column], values: Sequence[Column], ttl: Ttl | None) -> None:
    both = {column.name for column in keys} & {column.name for column in values}
    if both:
        raise InvalidInputError("a column is both key and value", found=", ".join(sorted(both)))
    if ttl is None or ttl.column is None:
        return
    types = {column.name: column.type for column in values}
    if types.get(ttl.column) not in ("timestamp", "timestamp_ntz"):
        raise InvalidInputError(
            "a time to live by event time needs a timestamp among the value columns",
            object_name=ttl.column,
            found=types.get(ttl.column, "no such column"),
            expected="timestamp",
        )
