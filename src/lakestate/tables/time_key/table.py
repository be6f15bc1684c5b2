"""`TimeKeyTable`: many rows per key, each with an event time, appended and expired by time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import ClassVar

import pyarrow as pa

from lakestate.codec.table_codecs import TableCodec, TimeKeyCodec
from lakestate.config import duration_us
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.compatibility import Compatibility, compatibility
from lakestate.protocol.metadata import Column, TableConfig, TableFiles
from lakestate.protocol.table_types import TIME_KEY, TableType
from lakestate.protocol.values import Epoch, FileRef, TaskInfo
from lakestate.tables.arrow.schema import columns_of
from lakestate.tables.context import TableContext
from lakestate.tables.contract import CompactedFiles
from lakestate.tables.migration.migrations import Migration, name_before_all
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs.file_check import check_run_file
from lakestate.tables.runs.files import open_run
from lakestate.tables.runs.layout import REMOVED
from lakestate.tables.runs.run import Run
from lakestate.tables.runs.table import RunTable, check_timestamp
from lakestate.tables.time_key.compaction import compact_time_runs
from lakestate.tables.time_key.deletes import DeletesLayout, is_deletes
from lakestate.tables.time_key.files import (
    TimeKeyCheckpointer,
    later_us,
    merge_files,
    retained_from_us,
    swap_in_live_files,
)
from lakestate.tables.time_key.view import TimeKeyView


class TimeKeyTable(RunTable):
    """Rows by key and event time, kept until they are far enough behind the watermark.

    >>> clicks = TimeKeyTable("clicks", key="user string", value="page string, ts timestamp",
    ...                       retention="1 hour")
    >>> [str(column) for column in clicks.config.value_columns]
    ['page string', 'ts timestamp not null']
    >>> clicks.config.time_column, clicks.config.retention_us
    ('ts', 3600000000)

    An operator reads and writes it through its view, `ctx.clicks`: `insert`, `rows_between`, `rows_of`,
    `delete`, `expire` and more; see `lakestate.TimeKeyView`.

    `time` names the value column that holds the event time. With `retention`, a row expires once the
    watermark has passed its time by more than that. `route_by` names the key columns that the pipeline
    routes by, where the table's key is finer. `version` and `migrations` define how state of older
    versions is read. A migration may not change keys or event times. It may rename the time column,
    but not choose another one.
    """

    table_type: ClassVar[TableType] = TIME_KEY
    codec: ClassVar[TableCodec] = TimeKeyCodec()

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
        meanings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            name,
            key,
            _require_time_column(columns_of(value, what="value"), time),
            route_by,
            version=version,
            migrations=migrations,
            description=description,
            meanings=meanings,
        )
        self._time = time
        self._retention_us = None if retention is None else duration_us(retention)

    @cached_property
    def config(self) -> TableConfig:
        """The declaration as it is stored."""
        return replace(self._base_config(), time_column=self._time, retention_us=self._retention_us)

    def compatibility_with(self, stored: TableConfig) -> Compatibility:
        """Whether this declaration can read what is stored under another, by the same event time."""
        steps = [step for step in self._migrations if step.from_version >= stored.state_version]
        before = name_before_all(str(self.config.time_column), steps)
        return compatibility(stored, self.config, self.migrates_from, before)

    def open_view(self, files: TableFiles, context: TableContext) -> TimeKeyView:
        """The state that these files hold."""
        return TimeKeyView(self.layout, files, context, self.upgrade)

    def expired_before_us(self, files: TableFiles, context: TableContext) -> int | None:
        """The time before which rows have expired, by retention or because an operator said so."""
        return later_us(retained_from_us(self.config, context), files.expired_before_us)

    def open_file(self, file: FileRef, context: TableContext) -> Run:
        """The rows of one file, or its deleted keys."""
        if not is_deletes(file):
            return super().open_file(file, context)
        return open_run(file, self._deletes_layout, context, self._deletes_layout.rename_keys)

    def epoch_checkpointer(
        self, epoch: Epoch, previous: TableFiles, context: TableContext
    ) -> TimeKeyCheckpointer:
        """Writes new runs in front of those that are still needed."""
        return TimeKeyCheckpointer(self.layout, epoch, previous, context)

    @classmethod
    def merge_checkpoint_metadata(cls, config: TableConfig, parts: Mapping[int, TableFiles]) -> TableFiles:
        """All files, in order of subtask. Each states which of its keys and times are valid."""
        return merge_files(config, [parts[index] for index in sorted(parts)])

    def compact_data(
        self, files: TableFiles, policy: CompactionPolicy, epoch: Epoch, context: TableContext
    ) -> CompactedFiles | None:
        """Merge neighbouring runs of similar size, dropping expired and deleted rows."""
        return compact_time_runs(self.layout, files, policy, epoch, context, self.upgrade)

    @classmethod
    def apply_compacted_checkpoint(
        cls, files: TableFiles, compacted: CompactedFiles, task: TaskInfo
    ) -> TableFiles:
        """The files with a merge swapped in, without rows that expired since the merge."""
        return swap_in_live_files(files, compacted)

    @cached_property
    def _deletes_layout(self) -> DeletesLayout:
        return DeletesLayout.of(self.layout)

    def check_file(self, file: FileRef, context: TableContext) -> None:
        """Raise if a file, of rows or of deleted keys, is not what its reference says."""
        layouts = {layout.config.schema_fingerprint: layout for layout in (self.layout, self._deletes_layout)}
        expected = self._deletes_layout if is_deletes(file) else self.layout
        check_run_file(file, layouts.get(file.schema_fingerprint, expected), context)

    def check_rows(self, rows: pa.Table, identity: CheckpointParquetMetadata, shown: str) -> int:
        """The number of rows of a file that were migrated. Deleted keys need no migration."""
        return 0 if REMOVED in rows.column_names else super().check_rows(rows, identity, shown)


def _require_time_column(values: Sequence[Column], time: str) -> tuple[Column, ...]:
    """The value columns, of which the event time is never null."""
    check_timestamp(
        values,
        time,
        "a table by time needs its event time among the value columns",
        action="declare it in `value`, or name another column with `time`",
    )
    return tuple(replace(column, nullable=False) if column.name == time else column for column in values)
