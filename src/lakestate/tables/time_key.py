"""`TimeKeyTable`: many rows per key, each with an event time, appended and expired by time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import ClassVar, Self

import pyarrow as pa

from lakestate.config import duration_us
from lakestate.errors import InvalidInputError
from lakestate.protocol.metadata import Column, TableConfig, TableFiles, TableType
from lakestate.protocol.values import Epoch, TaskInfo
from lakestate.tables.context import TableContext
from lakestate.tables.keyed import checked_key_columns, checked_route
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
from lakestate.tables.schema import columns_of
from lakestate.tables.time_key_files import (
    TimeKeyCheckpointer,
    compact_time_runs,
    merged_files,
    swapped_in_alive,
)
from lakestate.tables.time_key_view import TimeKeyState


class TimeKeyTable(Table):
    """Rows by key and event time, kept until they are far enough behind the watermark.

    >>> clicks = TimeKeyTable("clicks", key="user string", value="page string, ts timestamp",
    ...                       retention="1 hour")
    >>> [str(column) for column in clicks.config.value_columns]
    ['page string', 'ts timestamp not null']
    >>> clicks.config.time_column, clicks.config.retention_us
    ('ts', 3600000000)

    `time` names the value column that holds the event time. With `retention`, a row is gone once
    the watermark has passed its time by more than that. `route_by` names the key columns that the
    pipeline routes by, where the table's key is finer. `version` and `migrations` say how state of
    older versions is read; a migration keeps keys and event times as they are.
    """

    table_type: ClassVar[TableType] = TableType.TIME_KEY

    def __init__(
        self,
        name: str | None = None,
        *,
        key: str | pa.Schema,
        value: str | pa.Schema,
        time: str = "ts",
        route_by: Sequence[str] | None = None,
        retention: str | timedelta | None = None,
        version: int = 1,
        migrations: Sequence[Migration] = (),
        description: str = "",
        _hash: Hash = routing_keys,
    ) -> None:
        super().__init__(name)
        self._keys = checked_key_columns(key)
        self._values = _checked_values(columns_of(value, what="value"), self._keys, time)
        self._time = time
        self._route_by = checked_route(route_by, self._keys)
        self._retention_us = None if retention is None else duration_us(retention)
        self._version = version
        self._migrations = tuple(migrations)
        self._description = description
        self._hash = _hash
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
            time_column=self._time,
            retention_us=self._retention_us,
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

    def open_view(self, files: TableFiles, context: TableContext) -> TimeKeyState:
        """The state that these files hold."""
        return TimeKeyState(self.layout, files, context, upgrade_of(self.layout, self._migrations))

    def epoch_checkpointer(
        self, epoch: Epoch, previous: TableFiles, context: TableContext
    ) -> TimeKeyCheckpointer:
        """Writes new runs in front of those that still count."""
        return TimeKeyCheckpointer(self.layout, epoch, previous, context)

    def check_rows(self, rows: pa.Table, identity: CheckpointParquetMetadata, shown: str) -> int:
        """How many rows of a file were brought to this version; raises what reading would raise."""
        return migrated_row_count(self.layout, self._migrations, rows, identity, shown)

    @classmethod
    def merge_checkpoint_metadata(cls, config: TableConfig, parts: Mapping[int, TableFiles]) -> TableFiles:
        """All files, in order of subtask. Each says which keys and times of it count."""
        return merged_files(config, [parts[index] for index in sorted(parts)])

    @classmethod
    def subtask_metadata_from_table(
        cls, config: TableConfig, merged: TableFiles, task: TaskInfo
    ) -> TableFiles:
        """The files with keys of a subtask, clipped to them."""
        clipped = (file.clipped_to(task.key_range) for file in merged.files)
        return replace(merged, files=tuple(file for file in clipped if file is not None))

    def compact_data(
        self, files: TableFiles, compaction: CompactionConfig, epoch: Epoch, context: TableContext
    ) -> CompactedFiles | None:
        """Merge neighbouring runs of similar size, dropping dead rows."""
        upgrade = upgrade_of(self.layout, self._migrations)
        return compact_time_runs(self.layout, files, compaction, epoch, context, upgrade)

    @classmethod
    def apply_compacted_checkpoint(
        cls, files: TableFiles, compacted: CompactedFiles, task: TaskInfo
    ) -> TableFiles:
        """The files with a merge swapped in, less what has died since the merge."""
        return swapped_in_alive(files, compacted)


def _checked_values(values: Sequence[Column], keys: Sequence[Column], time: str) -> tuple[Column, ...]:
    """The value columns, of which the event time is never null."""
    both = {column.name for column in keys} & {column.name for column in values}
    if both:
        raise InvalidInputError("a column is both key and value", found=", ".join(sorted(both)))
    types = {column.name: column.type for column in values}
    if types.get(time) not in ("timestamp", "timestamp_ntz"):
        raise InvalidInputError(
            "a table by time needs its event time among the value columns",
            object_name=time,
            found=types.get(time, "no such column"),
            expected="timestamp or timestamp_ntz",
            action="declare it in `value`, or name another column with `time`",
        )
    return tuple(replace(column, nullable=False) if column.name == time else column for column in values)
