"""`GlobalKeyedTable`: typed Python keys and values, replicated to every subtask of an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import pyarrow as pa

from lakestate.codec.table_codecs import GlobalKeyedCodec, TableCodec
from lakestate.errors import InvalidInputError
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.metadata import Column, TableConfig, TableFiles
from lakestate.protocol.table_types import GLOBAL_KEYED, TableType
from lakestate.protocol.values import Epoch, FileRef, TaskInfo
from lakestate.tables.context import TableContext
from lakestate.tables.contract import CompactedFiles, Table, swap_in
from lakestate.tables.description import describe_typed_table
from lakestate.tables.global_keyed.checkpointer import GlobalKeyedCheckpointer
from lakestate.tables.global_keyed.compaction import compact_entries, merge_entries
from lakestate.tables.global_keyed.file_check import check_entry_file
from lakestate.tables.global_keyed.files import newest_first, parse_entries
from lakestate.tables.global_keyed.layer_cache import forget_entries
from lakestate.tables.global_keyed.plain_values import plain_column
from lakestate.tables.global_keyed.python_types import StoredType
from lakestate.tables.global_keyed.value_codec import EntryCodec, value_types
from lakestate.tables.global_keyed.view import GlobalKeyedView
from lakestate.tables.migration.steps import require_version
from lakestate.tables.migration.values import MigratableState, version_of
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata


class GlobalKeyedTable(Table):
    """A small map of Python objects, which every subtask reads as a whole and writes in part.

    >>> offsets = GlobalKeyedTable("offsets", key=tuple[str, int], value=int)
    >>> offsets.config.key_columns[0].type
    'tuple[str, int]'

    An operator reads and writes it through its view, `ctx.offsets`: `get`, `insert`, `remove`, `items` and
    more; see `lakestate.GlobalKeyedView`.

    If several subtasks write one key, the later epoch wins, and within an epoch the higher subtask.
    Keys that are equal in Python are one key; their type must be hashable. If `value` is a
    `lakestate.MigratableState`, its `VERSION` is the table's version. With `two_phase_commit`, an epoch
    can hold data to commit: see `GlobalKeyedView.set_commit_data`.
    """

    table_type: ClassVar[TableType] = GLOBAL_KEYED
    codec: ClassVar[TableCodec] = GlobalKeyedCodec()

    def __init__(
        self,
        name: str | None = None,
        *,
        key: Any,
        value: Any,
        version: int | None = None,
        description: str = "",
        two_phase_commit: bool = False,
    ) -> None:
        super().__init__(name)
        shown = name or "(not named yet)"
        self._key: StoredType | None = StoredType.of_key(key, shown)
        self._value: StoredType | None = StoredType.of_value(value, shown)
        self._version = _state_version(version, value, shown)
        for older in value_types(value, self._version).values():
            StoredType.of_value(older, shown)
        self._description = description
        self._two_phase_commit = two_phase_commit

    @cached_property
    def config(self) -> TableConfig:
        """The declaration as it is stored."""
        key, value = self._types()
        return TableConfig(
            name=self.name,
            table_type=self.table_type,
            state_version=self._version,
            description=self._description,
            key_columns=(Column("key", key.text, nullable=False),),
            value_columns=(Column("value", value.text),),
            uses_two_phase_commit=self._two_phase_commit,
        )

    def __repr__(self) -> str:
        kind = type(self).__name__
        if self._name is None:
            return super().__repr__()
        (key,), (value,) = self.config.key_columns, self.config.value_columns
        return describe_typed_table(kind, self.config, key.type, value.type)

    @property
    def migrates_from(self) -> frozenset[int]:
        """The older versions whose types are known."""
        if self._value is None:
            return frozenset()
        return frozenset(value_types(self._value.declared, self._version)) - {self._version}

    @classmethod
    def from_config(cls, config: TableConfig) -> Self:
        """The table of a stored declaration. Without types it can be merged, but not opened."""
        table = cls.__new__(cls)
        Table.__init__(table, config.name)
        table.__dict__["config"] = config
        table._key = table._value = None
        table._version = config.state_version
        return table

    def open_view(self, files: TableFiles, context: TableContext) -> GlobalKeyedView:
        """All entries in these files, which are those of all subtasks."""
        return GlobalKeyedView(self.config, self._codec(), files, context)

    def stored_rows(self, files: TableFiles, context: TableContext) -> pa.RecordBatchReader:
        """All entries, as columns of plain types or JSON; see `plain_values`. No types are needed."""
        codec = None if self._value is None else self._codec()
        entries = merge_entries(newest_first(files.files), self.config, codec, context)
        (key,), (value,) = self.config.key_columns, self.config.value_columns
        where = f"table {self.name} of operator {context.task.operator_id}"
        keys = plain_column(list(entries), key.type, where)
        values = plain_column(list(entries.values()), value.type, where)
        return pa.table({"key": keys, "value": values}).to_reader()

    def epoch_checkpointer(
        self, epoch: Epoch, previous: TableFiles, context: TableContext
    ) -> GlobalKeyedCheckpointer:
        """Writes a new file, and carries forward the previous files that this subtask owns."""
        return GlobalKeyedCheckpointer(self.config, epoch, previous, context)

    @classmethod
    def merge_checkpoint_metadata(cls, config: TableConfig, parts: Mapping[int, TableFiles]) -> TableFiles:
        """The files of all subtasks, each once, newest first."""
        files = [file for index in sorted(parts) for file in parts[index].files]
        return TableFiles(config.name, config.table_type, newest_first(files))

    def compact_data(
        self, files: TableFiles, policy: CompactionPolicy, epoch: Epoch, context: TableContext
    ) -> CompactedFiles | None:
        """Merge files of all subtasks into one, without overwritten values."""
        codec = None if self._value is None else self._codec()
        return compact_entries(self.config, codec, files, policy, epoch, context)

    @classmethod
    def apply_compacted_checkpoint(
        cls, files: TableFiles, compacted: CompactedFiles, task: TaskInfo
    ) -> TableFiles:
        """The files of all subtasks with a merge in the place of what it replaces; unchanged if outdated.

        Every subtask gets the same files and merge, and so decides the same. If older files remained
        below a merge that has dropped the removed keys, these would return from them.
        """
        is_oldest = _last_path(files.files) == _last_path(compacted.replaced)
        return swap_in(files, compacted) if is_oldest or compacted.keeps_removals else files

    def forget_files(self, files: Sequence[FileRef], context: TableContext) -> None:
        """Remove the entries of these files from the host's cache."""
        forget_entries(files, self.config, context)

    def check_file(self, file: FileRef, context: TableContext) -> None:
        """Raise if a file is not what its reference says."""
        check_entry_file(file, self.config, context)

    def check_rows(self, rows: pa.Table, identity: CheckpointParquetMetadata, shown: str) -> int:
        """The number of values of a file that were migrated. Raises what reading the file would raise."""
        codec = self._codec()
        stored = parse_entries(rows, identity, shown)
        keys = codec.decode_keys(stored.keys, shown)
        live = [(key, value) for key, value in zip(keys, stored.values, strict=True) if value is not None]
        codec.decode_values(
            [value for _, value in live], [key for key, _ in live], stored.state_version, shown
        )
        return len(live) if stored.state_version < self._version else 0

    def _codec(self) -> EntryCodec:
        # Created each time: decoders do not pickle, and declarations are sent to subtasks.
        return EntryCodec(self.name, *self._types(), self._version)

    def _types(self) -> tuple[StoredType, StoredType]:
        if self._key is None or self._value is None:
            raise InvalidInputError(
                "a table that is known only from its metadata cannot be opened",
                object_name=f"table {self.name}",
                expected=f"key {self.config.key_columns[0].type}, value {self.config.value_columns[0].type}",
                action="declare it with its types",
            )
        return self._key, self._value


def _last_path(files: Sequence[FileRef]) -> str | None:
    return files[-1].path if files else None


def _state_version(version: int | None, value: Any, table: str) -> int:
    is_migratable = isinstance(value, type) and issubclass(value, MigratableState)
    if is_migratable and version not in (None, version_of(value)):
        raise InvalidInputError(
            "the version of a table with migratable values is that of the value type",
            object_name=f"table {table}",
            found=f"version={version}",
            expected=f"{value.__name__}.VERSION = {version_of(value)}",
        )
    return require_version(version_of(value) if version is None else version)
