"""What a driver sends to every subtask of an epoch, and what subtasks report back.

Both travel inside one running job, never through storage: a plan with the code that Spark ships,
a report as MessagePack in a result row.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any

import msgspec
import pyarrow as pa

from lakestate.codec.untrusted import UNDECODABLE
from lakestate.errors import CorruptionError
from lakestate.observability.file_events import FileEvent
from lakestate.observability.progress import StepMetrics
from lakestate.protocol.metadata import CommitPart, Manifest, NamedBytes, SourceOffsets
from lakestate.protocol.values import Epoch, Generation, ObjectRef
from lakestate.tables.contract import CompactedFiles
from lakestate.tables.manager import SubtaskCheckpoint
from lakestate.tables.stored_operator import ShippedOperator

_CODEC = "zstd"

SubtaskMerges = Mapping[int, tuple[CompactedFiles, ...]]
"""Merges of one operator to swap in, by subtask index."""

Merges = Mapping[str, SubtaskMerges]
"""Merges to swap in, by operator."""


class Ending(Enum):
    """What follows an epoch, and so what its subtasks do at its end."""

    CONTINUE = "continue"
    """The next epoch. Files stay open for it."""
    FINISH_FILES = "finish_files"
    """A pause. The epoch has no rows and calls no operator; sinks finish their files."""
    FILL = "fill"
    """The first epoch of a job with initial state. Its rows go into tables, and no operator is called."""
    END_OF_STREAM = "end_of_stream"
    """Nothing. Operators are closed, sinks finish their files, and the job is marked as finished."""

    @property
    def finishes_files(self) -> bool:
        """Whether sinks finish all files."""
        return self in (Ending.FINISH_FILES, Ending.END_OF_STREAM)


@dataclass(frozen=True, slots=True)
class EpochTimes:
    """What the steps of an epoch know of time, the same in all subtasks."""

    watermark_us: int | None
    previous_watermark_us: int | None
    processing_time_us: int
    is_last: bool = False
    """Whether the stream has ended."""


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """One epoch to run, the same for all subtasks."""

    job_id: str
    epoch: Epoch
    generation: Generation
    parent: Manifest | None
    """The epoch to restore from, or None to start with empty state."""
    watermark_us: int | None
    min_epoch: Epoch
    processing_time_us: int
    expired_at_us: int | None = None
    """If time goes back with this epoch: rows that had expired by then stay so."""
    ending: Ending = Ending.CONTINUE
    merges: Merges = field(default_factory=dict)
    state_id: str = ""
    """Identifies the state of the job; see `GenerationRecord`."""
    stored: Mapping[str, ShippedOperator] = field(default_factory=dict)
    """The metadata of the parent epoch by operator. Subtasks read what is not here."""

    def __reduce__(self) -> tuple[object, ...]:
        # It goes to every subtask and says something of each: compressed, that is a third of the bytes.
        plain = pickle.dumps(tuple(getattr(self, each.name) for each in fields(self)))
        return _unpack_plan, (pa.compress(plain, codec=_CODEC, asbytes=True), len(plain))

    @property
    def times(self) -> EpochTimes:
        """What the steps know of time."""
        return EpochTimes(
            watermark_us=self.watermark_us,
            previous_watermark_us=None if self.parent is None else self.parent.watermark_us,
            processing_time_us=self.processing_time_us,
            is_last=self.ending is Ending.END_OF_STREAM,
        )

    def for_subtasks(self, steps: Collection[str] | None = None) -> EpochPlan:
        """The plan without what only the driver needs, and what only other steps than these need."""
        if self.parent is None:
            return self
        operators = tuple(
            entry for entry in self.parent.operators if steps is None or entry.operator_id in steps
        )
        return replace(
            self,
            parent=replace(
                self.parent, operators=operators, engine_files=(), engine_logs=(), sinks=(), sources=()
            ),
            merges={name: found for name, found in self.merges.items() if steps is None or name in steps},
            stored={name: found for name, found in self.stored.items() if steps is None or name in steps},
        )


def _unpack_plan(packed: bytes, size_bytes: int) -> EpochPlan:
    # From the driver of this job, like everything that Spark ships. It is never stored.
    return EpochPlan(*pickle.loads(pa.decompress(packed, size_bytes, codec=_CODEC)))  # noqa: S301


@dataclass(frozen=True, slots=True)
class SubtaskReport:
    """What one subtask of a stage did, with one checkpoint for each operator and sink in it."""

    stage: str
    subtask_index: int
    checkpoints: tuple[SubtaskCheckpoint, ...]
    metrics: Mapping[str, StepMetrics] = field(default_factory=dict)
    restore_ms: float = 0.0
    process_ms: float = 0.0
    checkpoint_ms: float = 0.0
    file_events: tuple[FileEvent, ...] = ()
    due_us: int | None = None
    """The earliest processing time at which a step of this subtask wants to be called."""
    parts_ms: Mapping[str, float] = field(default_factory=dict)
    """Where its time went; see `observability.time_parts`."""
    started_s: float = 0.0
    ended_s: float = 0.0
    """When it ran, by the clock of its host."""
    row_bytes: float = 0.0
    """The size of a row in the batch with the widest rows; 0 if there were none."""

    def encode(self) -> bytes:
        """The report as MessagePack."""
        return msgspec.msgpack.encode(self, enc_hook=_to_plain)

    @staticmethod
    def decode(data: bytes) -> SubtaskReport:
        """The report in these bytes."""
        try:
            return _REPORT.decode(data)
        except UNDECODABLE as cause:
            raise CorruptionError(
                "the report of a subtask cannot be decoded", found=f"{len(data)} bytes: {cause}"
            ) from cause


@dataclass(frozen=True, slots=True)
class LogUpdate:
    """A file of the engine that grows: pieces that are stored already, and bytes that are new, in order."""

    name: str
    parts: tuple[ObjectRef | bytes, ...]


@dataclass(frozen=True, slots=True)
class EpochResult:
    """The result of running a plan: the reports of all subtasks, and how far the sources were read."""

    reports: tuple[SubtaskReport, ...]
    sources: tuple[SourceOffsets, ...] = ()
    """With the watermark of each source after this epoch's rows."""
    engine_files: tuple[NamedBytes, ...] = ()
    """What the engine needs to continue after this epoch."""
    engine_logs: tuple[LogUpdate, ...] = ()
    """Files of the engine that grow, as they are after this epoch."""
    rows: Mapping[str, int] = field(default_factory=dict)
    late_rows: Mapping[str, int] = field(default_factory=dict)
    parts_ms: Mapping[str, float] = field(default_factory=dict)
    """Where the time of the run went, if it was measured."""

    @property
    def file_events(self) -> list[FileEvent]:
        """What happened to output files, subtask by subtask."""
        return [event for report in self.reports for event in report.file_events]

    @property
    def due_us(self) -> int | None:
        """The earliest processing time at which a subtask wants to be called."""
        return min((report.due_us for report in self.reports if report.due_us is not None), default=None)

    @property
    def checkpoints(self) -> list[SubtaskCheckpoint]:
        """The checkpoints of all operators and sinks."""
        return [checkpoint for report in self.reports for checkpoint in report.checkpoints]


def encode_merges(merges: SubtaskMerges) -> bytes:
    """Merges of one operator as MessagePack."""
    return msgspec.msgpack.encode(merges, enc_hook=_to_plain)


def decode_merges(data: bytes) -> dict[int, tuple[CompactedFiles, ...]]:
    """The merges in these bytes."""
    try:
        return _MERGES.decode(data)
    except UNDECODABLE as cause:
        raise CorruptionError("merges cannot be decoded", found=f"{len(data)} bytes: {cause}") from cause


def encode_commit_parts(parts: Sequence[CommitPart]) -> bytes:
    """What all subtasks of a sink or operator left to commit, as it is kept in the manifest."""
    return msgspec.msgpack.encode(parts)


def decode_commit_parts(data: bytes, object_name: str) -> list[CommitPart]:
    """What all subtasks of a sink or operator left to commit.

    Bytes without subtask and table are those of a sink, as development versions wrote them.
    """
    try:
        parts = _PARTS.decode(data)
    except UNDECODABLE as cause:
        raise CorruptionError(
            "pre-commits cannot be decoded", object_name=object_name, found=str(cause)
        ) from cause
    return [
        CommitPart(number, "", part) if isinstance(part, bytes) else part for number, part in enumerate(parts)
    ]


def decode_pre_commits(data: bytes, object_name: str) -> list[bytes]:
    """The pre-commits of all subtasks of a sink."""
    return [part.data for part in decode_commit_parts(data, object_name)]


def _to_plain(value: Any) -> Any:
    if isinstance(value, Epoch | Generation):
        return int(value)
    raise NotImplementedError(f"a report cannot hold {type(value).__name__}")


def _from_plain(kind: type, value: Any) -> Any:
    return kind(value)


_REPORT: msgspec.msgpack.Decoder[SubtaskReport] = msgspec.msgpack.Decoder(SubtaskReport, dec_hook=_from_plain)
_PARTS: msgspec.msgpack.Decoder[list[bytes | CommitPart]] = msgspec.msgpack.Decoder(list[bytes | CommitPart])
_MERGES: msgspec.msgpack.Decoder[dict[int, tuple[CompactedFiles, ...]]] = msgspec.msgpack.Decoder(
    dict[int, tuple[CompactedFiles, ...]], dec_hook=_from_plain
)
