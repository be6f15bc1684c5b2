"""The life of every state table, whatever its type: declare, open, checkpoint, merge, compact, keep.

A `Table` is what users declare; it holds no data. A view holds one subtask's data for some epochs.
An `EpochCheckpointer` turns what a view has written into files and metadata.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol, Self

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.job.objects import JobObjects
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.compatibility import Compatibility, compatibility
from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.metadata import TableConfig, TableFiles
from lakestate.protocol.names import require_name
from lakestate.protocol.table_types import TableType
from lakestate.protocol.values import Epoch, FileRef, Generation, TaskInfo
from lakestate.tables.context import TableContext


@dataclass(frozen=True, slots=True)
class FinishedTable:
    """What a checkpointer has done: the table's files from now on, and how much it wrote."""

    files: TableFiles
    bytes_written: int = 0


@dataclass(frozen=True, slots=True)
class CompactedFiles:
    """A merge that was done beside the stream, waiting to be swapped in by the next epoch."""

    table: str
    replaced: tuple[FileRef, ...]
    """The merged files, in their order."""
    merged: tuple[FileRef, ...]
    """What stands in their place: nothing, if no row was left."""
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True)
class CompactionConfig:
    """What a compaction works with: where, when, and whose files it may touch."""

    objects: JobObjects
    policy: CompactionPolicy = field(default_factory=CompactionPolicy)
    generations: frozenset[Generation] | None = None
    """Only files of these generations, or None for all."""
    epochs_min: int = 2
    """Files must come from at least this many epochs to be worth a merge."""


class EpochCheckpointer(Protocol):
    """Collects what one table writes in one epoch."""

    def insert_data(self, rows: pa.Table) -> None:
        """Take rows in the table's own layout. They may be written in the background."""
        ...

    def finish(self) -> FinishedTable:
        """Wait until everything is stored. A failure in the background is raised here."""
        ...


class View(Protocol):
    """One subtask's sight of one table."""

    def checkpoint_into(self, checkpointer: EpochCheckpointer) -> None:
        """Hand over everything written since the last checkpoint."""
        ...

    def checkpointed(self, files: TableFiles, context: TableContext) -> None:
        """Go on with the next epoch on top of what was stored."""
        ...

    def forget_before(self, min_epoch: Epoch) -> None:
        """Let go of memory that only epochs before this one needed."""
        ...


class Table(ABC):
    """A declared table. Immutable; the same declaration serves every subtask and every epoch."""

    table_type: ClassVar[TableType]

    def __init__(self, name: str | None) -> None:
        self._name = None if name is None else require_name("table", name)

    def __set_name__(self, owner: type, name: str) -> None:
        """A table declared as an attribute is named after it."""
        if self._name is None:
            self._name = require_name("table", name)

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
        """The state that these files hold."""

    @abstractmethod
    def epoch_checkpointer(
        self, epoch: Epoch, previous: TableFiles, context: TableContext
    ) -> EpochCheckpointer:
        """What writes this table's part of an epoch on top of the previous files."""

    @classmethod
    @abstractmethod
    def merge_checkpoint_metadata(cls, config: TableConfig, parts: Mapping[int, TableFiles]) -> TableFiles:
        """One table's files over all subtasks of an operator, by subtask index."""

    @classmethod
    @abstractmethod
    def subtask_metadata_from_table(
        cls, config: TableConfig, merged: TableFiles, task: TaskInfo
    ) -> TableFiles:
        """A subtask's part of a merged table: this is all that rescaling is."""

    @abstractmethod
    def compact_data(
        self, files: TableFiles, compaction: CompactionConfig, epoch: Epoch, context: TableContext
    ) -> CompactedFiles | None:
        """Merge files that are worth it into new ones, named after `epoch`. None if none are."""

    @classmethod
    def apply_compacted_checkpoint(
        cls, files: TableFiles, compacted: CompactedFiles, task: TaskInfo
    ) -> TableFiles:
        """The files with a merge swapped in; unchanged if the merged files are not there any more."""
        return swapped_in(files, compacted)

    @classmethod
    def files_to_keep(cls, config: TableConfig, files: TableFiles) -> frozenset[str]:
        """The data files that restoring this needs."""
        return frozenset(file.path for file in files.files)


def swapped_in(files: TableFiles, compacted: CompactedFiles) -> TableFiles:
    """Put merged files in the place of the ones they replace.

    Newer files may have come in front since. If the replaced ones are not there as neighbours,
    with the same keys counting, something else has changed them (rescaling, another merge): the
    merge is dropped.
    """
    present = [_counted(file) for file in files.files]
    wanted = [_counted(file) for file in compacted.replaced]
    for start in range(len(present) - len(wanted) + 1):
        stop = start + len(wanted)
        if present[start:stop] == wanted:
            return replace(files, files=(*files.files[:start], *compacted.merged, *files.files[stop:]))
    return files


def _counted(file: FileRef) -> tuple[str, KeyRange]:
    return file.path, file.valid_keys
