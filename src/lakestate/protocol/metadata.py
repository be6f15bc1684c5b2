"""The metadata of state: tables, subtasks and the manifest of an epoch. Pure values.

The tree is manifest → subtask metadata → data files. The manifest names the metadata objects and
sums them up; it does not repeat their file lists, so it stays small with many subtasks.
`unknown_fields` holds what a newer minor format wrote and this version does not know, so that it
survives being read and written again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from enum import IntEnum

from lakestate.errors import NotFoundError
from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.names import did_you_mean, require_name
from lakestate.protocol.relative_path import require_relative_path
from lakestate.protocol.table_types import TableType
from lakestate.protocol.values import Epoch, FileRef, ForkPoint, Generation, ObjectRef

FORMAT_MAJOR = 1
FORMAT_MINOR = 0


@dataclass(frozen=True, slots=True)
class FormatVersion:
    """A reader refuses a newer major version and ignores a newer minor one."""

    major: int = FORMAT_MAJOR
    minor: int = FORMAT_MINOR


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, its type written as in Spark SQL."""

    name: str
    type: str
    nullable: bool = True
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)
    """Not compared: fields that only a newer version knows must not make two declarations differ."""
    meaning: str = ""
    """What a column of a ready operator holds, such as "sum". Columns with a meaning may be added, removed
    and widened without a new state version: files without them hold null."""

    def __str__(self) -> str:
        return f"{self.name} {self.type}" + ("" if self.nullable else " not null")


@dataclass(frozen=True, slots=True)
class TableConfig:
    """How a table was declared. Stored with every checkpoint, compared at every restore."""

    name: str
    table_type: TableType
    state_version: int = 1
    description: str = ""
    key_columns: tuple[Column, ...] = ()
    value_columns: tuple[Column, ...] = ()
    routing_columns: tuple[str, ...] = ()
    time_column: str | None = None
    ttl_us: int | None = None
    retention_us: int | None = None
    uses_two_phase_commit: bool = False
    removed_columns: tuple[str, ...] = ()
    """Names of columns with a meaning that were removed. Older files may still have them."""
    options: bytes = b""
    """What a type from outside this package stores besides, in its own encoding."""
    unknown_fields: bytes = b""
    typed_unknown_fields: bytes = b""
    """Those of the message of the table's own type."""

    def __post_init__(self) -> None:
        require_name("table", self.name)

    @property
    def evolves(self) -> bool:
        """Whether columns may be added and removed within a state version."""
        return any(column.meaning for column in self.value_columns)

    @property
    def schema_fingerprint(self) -> int:
        """64 bits that differ when the stored columns differ."""
        shown = [self.table_type.name]
        shown += [f"key {column}" for column in self.key_columns]
        shown += [f"value {column}" for column in self.value_columns]
        digest = hashlib.blake2b("\n".join(shown).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big")


@dataclass(frozen=True, slots=True)
class TableFiles:
    """One subtask's part of one table in one epoch: its files, newest first."""

    table: str
    table_type: TableType
    files: tuple[FileRef, ...] = ()
    expired_before_us: int | None = None
    commit_data: bytes | None = None
    unknown_fields: bytes = b""
    typed_unknown_fields: bytes = b""
    """Those of the message of the table's own type."""


@dataclass(frozen=True, slots=True)
class SubtaskMetadata:
    """Everything that one subtask of one operator stores about one epoch."""

    job_id: str
    operator_id: str
    subtask_index: int
    parallelism: int
    epoch: Epoch
    generation: Generation
    attempt: str
    key_range: KeyRange
    started_ms: int
    finished_ms: int
    watermark_us: int | None = None
    then_stop: bool = False
    bytes_written: int = 0
    configs: tuple[TableConfig, ...] = ()
    tables: tuple[TableFiles, ...] = ()
    format: FormatVersion = field(default_factory=FormatVersion)
    unknown_fields: bytes = b""

    def table(self, name: str) -> TableFiles | None:
        """This subtask's part of a table, or None."""
        return next((files for files in self.tables if files.table == name), None)

    def config(self, name: str) -> TableConfig | None:
        """The declaration of a table, or None."""
        return next((config for config in self.configs if config.name == name), None)


@dataclass(frozen=True, slots=True)
class StateSummary:
    """The totals of a subtask's metadata, which can then be had without reading it."""

    file_count: int = 0
    row_count: int = 0
    size_bytes: int = 0
    bytes_written: int = 0


@dataclass(frozen=True, slots=True)
class SubtaskEntry:
    """Where the metadata of a subtask is, which keys it covers, and its totals."""

    subtask_index: int
    key_range: KeyRange
    metadata: ObjectRef
    summary: StateSummary = StateSummary()
    watermark_us: int | None = None
    """The subtask's own watermark, where it is not the operator's."""
    unknown_fields: bytes = b""


@dataclass(frozen=True, slots=True)
class OperatorEntry:
    """One operator in a manifest."""

    operator_id: str
    parallelism: int
    subtasks: tuple[SubtaskEntry, ...]
    watermark_us: int | None = None
    unknown_fields: bytes = b""


@dataclass(frozen=True, slots=True)
class NamedBytes:
    """A small file kept inside the manifest, such as one of Spark's offset logs.

    The name is a path below the directory that the file is restored to, and never leaves it.
    """

    name: str
    data: bytes
    unknown_fields: bytes = b""

    def __post_init__(self) -> None:
        require_relative_path(self.name)


@dataclass(frozen=True, slots=True)
class EngineLog:
    """A file of the engine that is only ever appended to, kept in immutable pieces.

    The pieces are its content after the line with its version. An epoch refers to those of its parent
    and adds what is new, however long the file has become.
    """

    name: str
    pieces: tuple[ObjectRef, ...]
    unknown_fields: bytes = b""

    def __post_init__(self) -> None:
        require_relative_path(self.name)


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """How far a source was read, and its watermark."""

    source: str
    offsets: str
    watermark_us: int | None = None
    rows_at_us: int | None = None
    """The processing time at which it last had rows, or began to be read; None without event time."""
    unknown_fields: bytes = b""


@dataclass(frozen=True, slots=True)
class CommitPart:
    """What one subtask left to commit, through one of its tables."""

    subtask_index: int
    table: str
    data: bytes
    """As given to `set_commit_data`."""


@dataclass(frozen=True, slots=True)
class SinkPreCommit:
    """What is to be committed for a sink, or for an operator with `on_commit`: its parts, encoded."""

    sink_id: str
    """The id of the sink or operator."""
    data: bytes
    unknown_fields: bytes = b""


class CompletionStatus(IntEnum):
    """How an epoch ended."""

    COMPLETE = 1
    FINAL = 2
    """Complete, and the stream has ended: operators are closed, and no file is open."""


@dataclass(frozen=True, slots=True)
class WentBack:
    """A job was made to continue from an earlier epoch: `epoch` was published with the state of `to`."""

    to: Epoch
    epoch: Epoch
    unknown_fields: bytes = b""


@dataclass(frozen=True, slots=True)
class ForkedFrom:
    """A job began with the state of an epoch of another job."""

    job_id: str
    epoch: Epoch
    is_muted: bool
    """Whether the epoch has no output: nothing of it is committed, now or later."""
    unknown_fields: bytes = b""

    @property
    def point(self) -> ForkPoint:
        """The epoch that it began with."""
        return ForkPoint(self.job_id, self.epoch)


@dataclass(frozen=True, slots=True)
class PartDuration:
    """A part of an epoch, and how long it took."""

    part: str
    microseconds: int
    unknown_fields: bytes = b""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything about one epoch, in one object."""

    job_id: str
    epoch: Epoch
    generation: Generation
    parent: Epoch | None
    started_ms: int
    finished_ms: int
    min_epoch: Epoch
    watermark_us: int | None = None
    status: CompletionStatus = CompletionStatus.COMPLETE
    operators: tuple[OperatorEntry, ...] = ()
    sources: tuple[SourceOffsets, ...] = ()
    sinks: tuple[SinkPreCommit, ...] = ()
    engine_files: tuple[NamedBytes, ...] = ()
    engine_logs: tuple[EngineLog, ...] = ()
    state_id: str = ""
    """As in the fence, which can therefore be rebuilt; see `GenerationRecord`."""
    went_back: WentBack | None = None
    """The last time that the job went back; carried from epoch to epoch."""
    forked_from: ForkedFrom | None = None
    """Where the state began, if the job is a fork; carried from epoch to epoch."""
    parent_parts: tuple[PartDuration, ...] = ()
    """Where the time of the parent epoch went, if its driver still knew."""
    format: FormatVersion = field(default_factory=FormatVersion)
    unknown_fields: bytes = b""

    @property
    def is_muted(self) -> bool:
        """Whether the epoch has no output, because the job is a fork that was not asked to write."""
        return self.forked_from is not None and self.forked_from.is_muted

    def forked_as(self, *, is_muted: bool) -> ForkedFrom | None:
        """What the next epoch says about the fork; None if the job is not one."""
        return None if self.forked_from is None else replace(self.forked_from, is_muted=is_muted)

    def operator(self, operator_id: str) -> OperatorEntry | None:
        """An operator's entry, or None."""
        return next((entry for entry in self.operators if entry.operator_id == operator_id), None)

    def require_operator(self, operator_id: str, action: str | None = None) -> OperatorEntry:
        """An operator's entry, or NotFoundError with the names that the epoch has."""
        entry = self.operator(operator_id)
        if entry is None:
            known = [each.operator_id for each in self.operators]
            hint = did_you_mean(operator_id, known)
            raise NotFoundError(
                f"epoch {self.epoch} of job {self.job_id} has no such operator",
                object_name=operator_id,
                found=", ".join(sorted(known)) or "no operator",
                action="; ".join(filter(None, (hint, action))) or None,
            )
        return entry

    def subtask_in_this_epoch(
        self, operator: OperatorEntry, entry: SubtaskEntry, stored: SubtaskMetadata
    ) -> SubtaskMetadata:
        """What a metadata object says, as of this epoch.

        A subtask that changed nothing refers to the object of an earlier epoch. Its tables are still
        right; what it says of its own epoch is replaced by what the manifest says of this one.
        """
        if stored.epoch == self.epoch:
            return stored
        own_us = entry.watermark_us
        return replace(
            stored,
            epoch=self.epoch,
            generation=self.generation,
            started_ms=self.started_ms,
            finished_ms=self.finished_ms,
            watermark_us=operator.watermark_us if own_us is None else own_us,
            then_stop=self.status is CompletionStatus.FINAL,
            bytes_written=entry.summary.bytes_written,
        )

    @property
    def summary(self) -> StateSummary:
        """The sum over all operators and subtasks."""
        parts = [subtask.summary for operator in self.operators for subtask in operator.subtasks]
        return StateSummary(
            sum(part.file_count for part in parts),
            sum(part.row_count for part in parts),
            sum(part.size_bytes for part in parts),
            sum(part.bytes_written for part in parts),
        )
