"""One epoch of a job: its operators and tables, and the rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from lakestate.inspection.listing import Listing, time_of_us
from lakestate.inspection.state import StateSource
from lakestate.inspection.state_table import StateTable, TableInfo
from lakestate.job.objects import JobObjects
from lakestate.job.state_backend import StateBackend
from lakestate.protocol.metadata import Manifest, OperatorEntry
from lakestate.protocol.values import Epoch
from lakestate.tables.contract import Table
from lakestate.tables.stored_operator import newest_configs


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    """One operator in an epoch. Rows and bytes are those of its data files; see `EpochInfo`."""

    operator: str
    parallelism: int
    rows: int
    size_bytes: int
    files: int
    written_bytes: int
    watermark_us: int | None


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One data file, as one subtask refers to it."""

    operator: str
    table: str
    subtask: int
    url: str
    epoch: Epoch
    """The epoch that wrote it."""
    rows: int
    removals: int
    size_bytes: int
    row_groups: int
    version: int
    first_time: datetime | None
    """The earliest event time, or time of writing, if rows expire by it."""
    last_time: datetime | None


class EpochState:
    """One epoch of a job, for reading."""

    def __init__(self, backend: StateBackend, objects: JobObjects, manifest: Manifest) -> None:
        self._backend = backend
        self._objects = objects
        self.manifest = manifest

    def __repr__(self) -> str:
        return f"EpochState({self.manifest.job_id!r}, {self.epoch})"

    def _repr_html_(self) -> str:
        return self.tables()._repr_html_()

    @property
    def epoch(self) -> Epoch:
        """The number of the epoch."""
        return self.manifest.epoch

    def operators(self) -> Listing[OperatorInfo]:
        """The operators of the epoch."""
        return Listing(_describe_operator(entry, self.manifest) for entry in self.manifest.operators)

    def tables(self, operator: str | None = None) -> Listing[TableInfo]:
        """The tables of all operators, or of one."""
        entries = self.manifest.operators if operator is None else [self.manifest.require_operator(operator)]
        return Listing(info for entry in entries for info in self._tables_of(entry))

    def files(self, operator: str | None = None) -> Listing[FileInfo]:
        """The data files of all operators, or of one, once for each subtask that refers to them."""
        entries = self.manifest.operators if operator is None else [self.manifest.require_operator(operator)]
        return Listing(info for entry in entries for info in self._files_of(entry))

    def table(self, operator: str, table: str | Table) -> StateTable:
        """A table by its name, or by its declaration if the epoch holds rows of several state versions."""
        return StateTable(self.source(operator, table))

    def source(self, operator: str, table: str | Table) -> StateSource:
        """The files of a table, for what compares epochs."""
        return StateSource.find(self._backend, self._objects, self.manifest, operator, table)

    def has_table(self, operator: str, table: str) -> bool:
        """Whether the epoch has the table."""
        entry = self.manifest.operator(operator)
        stored = () if entry is None else self._objects.read_subtasks(entry.subtasks)
        return table in newest_configs(stored)

    def _files_of(self, entry: OperatorEntry) -> Iterator[FileInfo]:
        stored = self._objects.read_subtasks(entry.subtasks)
        for subtask, metadata in zip(entry.subtasks, stored, strict=True):
            for files in metadata.tables:
                for file in files.files:
                    yield FileInfo(
                        entry.operator_id,
                        files.table,
                        subtask.subtask_index,
                        self._objects.url_of(file.path),
                        file.epoch,
                        file.row_count,
                        file.removed_count,
                        file.size_bytes,
                        max(1, len(file.blocks)),
                        file.state_version,
                        time_of_us(None if file.times is None else file.times.first_us),
                        time_of_us(None if file.times is None else file.times.last_us),
                    )

    def _tables_of(self, entry: OperatorEntry) -> Sequence[TableInfo]:
        stored = self._objects.read_subtasks(entry.subtasks)
        return [
            TableInfo.of(entry.operator_id, config, [metadata.table(name) for metadata in stored])
            for name, config in sorted(newest_configs(stored).items())
        ]


def _describe_operator(entry: OperatorEntry, manifest: Manifest) -> OperatorInfo:
    parts = [subtask.summary for subtask in entry.subtasks]
    return OperatorInfo(
        entry.operator_id,
        entry.parallelism,
        sum(part.row_count for part in parts),
        sum(part.size_bytes for part in parts),
        sum(part.file_count for part in parts),
        sum(part.bytes_written for part in parts),
        manifest.watermark_us if entry.watermark_us is None else entry.watermark_us,
    )
