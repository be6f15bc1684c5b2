"""The contract of a state table of any type: declare, open, checkpoint, merge, compact, keep, check.

A `Table` is what users declare; it holds no data. A `View` holds one subtask's data for some epochs.
An `EpochCheckpointer` turns what a view has written into files and metadata.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa

from lakestate.codec import GenericTableCodec, TableCodec
from lakestate.errors import IncompatibleStateError, InvalidInputError
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.compatibility import Compatibility, compatibility
from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.metadata import TableConfig, TableFiles
from lakestate.protocol.names import require_name
from lakestate.protocol.rescale import clip_files
from lakestate.protocol.table_types import TableType
from lakestate.protocol.values import Epoch, FileRef, TaskInfo
from lakestate.tables.arrow.schema import arrow_fields
from lakestate.tables.context import TableContext
from lakestate.tables.description import describe_table
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata


@dataclass(frozen=True, slots=True)
class FinishedTable:
    """What a checkpointer has done: the table's files from now on, and how much it wrote."""

    files: TableFiles
    bytes_written: int = 0


@dataclass(frozen=True, slots=True)
class CompactedFiles:
    """A merge that was done beside the stream and waits to be swapped in by the next epoch."""

    table: str
    replaced: tuple[FileRef, ...]
    """The merged files, in their order."""
    merged: tuple[FileRef, ...]
    """What takes their place: nothing, if no row was left."""
    keeps_removals: bool = False
    """For a table that all subtasks share: removed keys are still marked, and older files may remain."""

    @property
    def bytes_written(self) -> int:
        """The size of the merged files."""
        return sum(file.size_bytes for file in self.merged)


class EpochCheckpointer(Protocol):
    """Collects what one table writes in one epoch."""

    def insert_data(self, rows: pa.Table) -> None:
        """Take rows in the table's own layout. They may be written in the background."""
        ...

    def finish(self) -> FinishedTable:
        """Wait until everything is stored. A failure in the background is raised here."""
        ...


Checkpointer = TypeVar("Checkpointer", bound=EpochCheckpointer)


def require_checkpointer(found: EpochCheckpointer, expected: type[Checkpointer]) -> Checkpointer:
    """The checkpointer, if it is of the class that the table's own `epoch_checkpointer` makes."""
    if not isinstance(found, expected):
        raise InvalidInputError(
            "a view got the checkpointer of another table type",
            found=type(found).__name__,
            expected=expected.__name__,
        )
    return found


class LifecycleMeta(ABCMeta):
    """Leaves out of `dir` and `help` of a concrete class what only Lakestate calls.

    Users read `help(KeyedTable)` to see what they can call. Authors of a type read `help(Table)`,
    which shows everything.
    """

    def __dir__(cls) -> list[str]:
        hidden: set[str] = set()
        for base in cls.__mro__[1:]:
            hidden |= base.__dict__.get("_lifecycle", frozenset())
        return sorted(set(super().__dir__()) - hidden)


class View(metaclass=LifecycleMeta):
    """One subtask's access to the data of one table, which operator code reads and writes through.

    What users call is up to the type. The methods here are called by Lakestate.
    """

    _lifecycle: ClassVar[frozenset[str]] = frozenset({"checkpoint_into", "begin_next_epoch", "forget_before"})

    @abstractmethod
    def checkpoint_into(self, checkpointer: EpochCheckpointer) -> None:
        """Hand over everything written since the last checkpoint."""

    @abstractmethod
    def begin_next_epoch(self, files: TableFiles, context: TableContext) -> None:
        """Continue with the next epoch on top of what was stored."""

    def forget_before(self, min_epoch: Epoch) -> None:
        """Release memory that only epochs before this one needed."""

    @abstractmethod
    def to_pylist(self) -> list[dict[str, Any]]:
        """Everything that this subtask sees, as dicts, in no particular order. For tests and tools."""

    def __dir__(self) -> list[str]:
        return dir(type(self))


class Table(metaclass=LifecycleMeta):
    """A declared table. Immutable; the same declaration serves every subtask and every epoch.

    To define a type of your own, derive from this class, set `table_type`, implement the abstract
    methods, and register the class with `register_table_type`. The other methods have a default that
    suits a list of data files partitioned by key range, or replicated, as the type's traits say.
    """

    table_type: ClassVar[TableType]
    codec: ClassVar[TableCodec] = GenericTableCodec()
    """How the declaration and the checkpoints of this type are stored."""

    _lifecycle: ClassVar[frozenset[str]] = frozenset(
        {
            "apply_compacted_checkpoint",
            "can_read",
            "check_file",
            "check_rows",
            "codec",
            "compact_data",
            "compatibility_with",
            "epoch_checkpointer",
            "expired_before_us",
            "files_to_keep",
            "forget_files",
            "from_config",
            "merge_checkpoint_metadata",
            "migrates_from",
            "open_view",
            "routing_keys_of",
            "stored_columns",
            "stored_rows",
            "subtask_metadata_from_table",
            "table_type",
        }
    )

    def __init__(self, name: str | None) -> None:
        self._name = None if name is None else require_name("table", name)

    def __set_name__(self, owner: type, name: str) -> None:
        """A table declared as an attribute is named after it."""
        if self._name is None:
            self._name = require_name("table", name)

    def __dir__(self) -> list[str]:
        return dir(type(self))

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"{kind}(not named yet)" if self._name is None else describe_table(kind, self.config)

    @property
    def name(self) -> str:
        """The name it is stored under."""
        if self._name is None:
            raise InvalidInputError(
                "a table has no name", action="pass one, or declare the table as a class attribute"
            )
        return self._name

    @property
    @abstractmethod
    def config(self) -> TableConfig:
        """The declaration as it is stored."""

    @property
    def migrates_from(self) -> frozenset[int]:
        """The older state versions that this declaration can read."""
        return frozenset()

    def compatibility_with(self, stored: TableConfig) -> Compatibility:
        """Whether this declaration can read what is stored under another."""
        return compatibility(stored, self.config, self.migrates_from)

    def can_read(self, file: FileRef) -> bool:
        """True if a file's rows can be brought into this declaration's version."""
        return file.state_version == self.config.state_version or file.state_version in self.migrates_from

    @classmethod
    @abstractmethod
    def from_config(cls, config: TableConfig) -> Self:
        """The table of a stored declaration, enough to merge, compact and clean it up."""

    @abstractmethod
    def open_view(self, files: TableFiles, context: TableContext) -> View:
        """The state that these files hold. Reading them can wait until the view is first used."""

    def stored_rows(self, files: TableFiles, context: TableContext) -> pa.RecordBatchReader:
        """The rows that these files hold, for tools that read state without the code that declared it.

        By default those of the view, under the declared columns. Override it to read large tables in
        pieces, or to show other columns.
        """
        schema = pa.schema(arrow_fields([*self.config.key_columns, *self.config.value_columns]))
        rows = self.open_view(files, context).to_pylist()
        others = {name for row in rows for name in row} - set(schema.names)
        if others:
            raise IncompatibleStateError(
                f"a {self.table_type} table shows columns that it does not declare",
                object_name=f"table {self.name}",
                found=", ".join(sorted(others)),
                expected=", ".join(schema.names),
                action=f"implement {type(self).__name__}.stored_rows",
            )
        return pa.Table.from_pylist(rows, schema).to_reader()

    def stored_columns(
        self,
        files: TableFiles,
        context: TableContext,
        columns: Sequence[str],
        routing_keys: np.ndarray | None = None,
    ) -> pa.RecordBatchReader:
        """Like `stored_rows`, with some of its columns, and at least the rows with these routing keys.

        `routing_keys` ascend and come from `routing_keys_of`; None stands for all rows. By default, all
        rows are read whatever is wanted, and whoever calls this drops the others.
        """
        rows = self.stored_rows(files, context)
        schema = pa.schema([rows.schema.field(name) for name in columns])
        return pa.RecordBatchReader.from_batches(schema, (batch.select(columns) for batch in rows))

    def routing_keys_of(self, keys: Mapping[str, pa.Array]) -> np.ndarray | None:
        """The routing keys of rows with these values in key columns, one for each.

        None if these columns do not decide, or if rows are not stored by routing key, the default.
        """
        return None

    def expired_before_us(self, files: TableFiles, context: TableContext) -> int | None:
        """The time before which rows of these files have expired; None if rows do not expire, the default."""
        return None

    @abstractmethod
    def epoch_checkpointer(
        self, epoch: Epoch, previous: TableFiles, context: TableContext
    ) -> EpochCheckpointer:
        """What writes this table's part of an epoch on top of the previous files."""

    @classmethod
    def merge_checkpoint_metadata(cls, config: TableConfig, parts: Mapping[int, TableFiles]) -> TableFiles:
        """One table's files over all subtasks of an operator, by subtask index.

        By default all of them, in order of subtask. Each says which of its keys count, so no row is
        lost or doubled.
        """
        files = tuple(file for index in sorted(parts) for file in parts[index].files)
        return TableFiles(config.name, config.table_type, files)

    @classmethod
    def subtask_metadata_from_table(
        cls, config: TableConfig, merged: TableFiles, task: TaskInfo
    ) -> TableFiles:
        """A subtask's part of a merged table: this is all that rescaling is.

        By default everything if the type is replicated, and otherwise the files with keys of the
        subtask, clipped to them.
        """
        if config.table_type.is_replicated:
            return merged
        return replace(merged, files=clip_files(merged.files, task.key_range))

    def compact_data(
        self, files: TableFiles, policy: CompactionPolicy, epoch: Epoch, context: TableContext
    ) -> CompactedFiles | None:
        """Merge files that are worth it into new ones, named after `epoch`. None if none are, the default."""
        return None

    @classmethod
    def apply_compacted_checkpoint(
        cls, files: TableFiles, compacted: CompactedFiles, task: TaskInfo
    ) -> TableFiles:
        """The files with a merge swapped in; unchanged if the merged files are not there any more."""
        return swap_in(files, compacted)

    @classmethod
    def files_to_keep(cls, config: TableConfig, files: TableFiles) -> frozenset[str]:
        """The data files that restoring this needs. Retention deletes all others."""
        return frozenset(file.path for file in files.files)

    def forget_files(self, files: Sequence[FileRef], context: TableContext) -> None:
        """Drop what this host keeps of files that the newest epoch does not need. Nothing, by default."""

    @abstractmethod
    def check_file(self, file: FileRef, context: TableContext) -> None:
        """Raise if a stored file is not what its reference and this declaration say."""

    def check_rows(self, rows: pa.Table, identity: CheckpointParquetMetadata, shown: str) -> int:
        """How many rows of a file of an older version can be migrated. Raises what reading would raise."""
        raise IncompatibleStateError(
            f"a {self.table_type} table cannot try its migrations",
            object_name=shown,
            found=f"state version {identity.state_version}",
            expected=f"state version {self.config.state_version}",
            action=f"implement {type(self).__name__}.check_rows",
        )


def swap_in(files: TableFiles, compacted: CompactedFiles) -> TableFiles:
    """Put merged files in the place of the ones they replace.

    Newer files may have come in front since. If the replaced ones are not there as neighbours,
    with the same keys counting, something else has changed them (rescaling, another merge): the
    merge is dropped.
    """
    present = [_path_and_keys(file) for file in files.files]
    wanted = [_path_and_keys(file) for file in compacted.replaced]
    for start in range(len(present) - len(wanted) + 1):
        stop = start + len(wanted)
        if present[start:stop] == wanted:
            return replace(files, files=(*files.files[:start], *compacted.merged, *files.files[stop:]))
    return files


def _path_and_keys(file: FileRef) -> tuple[str, KeyRange]:
    return file.path, file.valid_keys
