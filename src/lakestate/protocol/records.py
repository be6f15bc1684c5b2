"""The JSON records of a job: fence, epoch records, commit markers, tags, retention boundary. Pure.

A record states its kind and its job, and carries a checksum of its own bytes. Decoding is strict: the
bytes must be exactly what `encode` writes, so a flipped bit, a truncation or a record in the wrong
place is detected and reported by name.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self

from lakestate.errors import (
    RESTORE_OR_GO_BACK,
    CorruptionError,
    IncompatibleStateError,
    LakestateError,
    MisplacedObjectError,
)
from lakestate.protocol.names import require_name
from lakestate.protocol.sealed_json import seal, unseal
from lakestate.protocol.values import Epoch, ForkPoint, Generation, ObjectRef

RECORD_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Record:
    """The common part of all records: a kind, a job, and a strict encoding."""

    kind: ClassVar[str]
    remedy: ClassVar[str] = RESTORE_OR_GO_BACK
    """What to do if it is damaged."""
    job_id: str

    def encode(self) -> bytes:
        """The record as canonical JSON with its own checksum, on one line."""
        body = {"record": self.kind, "format": RECORD_FORMAT}
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        left_out = {item.name for item in fields(self) if values[item.name] == item.default}
        body |= {name: _json_value(value) for name, value in values.items() if name not in left_out}
        return seal(body)

    @classmethod
    def decode(cls, data: bytes, object_name: str, job_id: str) -> Self:
        """The record in `data`, which was read from `object_name` of the job.

        Raises CorruptionError if the bytes are not a record of this kind and job.
        """
        body = unseal(data, object_name, cls.remedy)
        if body.get("record") != cls.kind or body.get("job_id") != job_id:
            raise MisplacedObjectError(
                f"not the {cls.kind} of this job",
                object_name=object_name,
                found=f"{body.get('record')} of job {body.get('job_id')}",
                expected=f"{cls.kind} of job {job_id}",
            )
        if body.get("format") != RECORD_FORMAT:
            raise IncompatibleStateError(
                f"{cls.kind} of another format",
                object_name=object_name,
                found=f"format {body.get('format')}",
                expected=f"format {RECORD_FORMAT}",
                action="use a version of Lakestate that knows this format",
            )
        return cls._from_body(body, object_name)

    @classmethod
    def _from_body(cls, body: dict[str, Any], object_name: str) -> Self:
        defaults = {item.name: None if item.default is MISSING else item.default for item in fields(cls)}
        values = {name: body.get(name, default) for name, default in defaults.items()}
        try:
            record = cls(**{name: _field_value(name, value) for name, value in values.items()})
        except (LakestateError, TypeError, ValueError, KeyError) as cause:
            raise CorruptionError(
                f"malformed {cls.kind}", object_name=object_name, found=str(cause)[:200]
            ) from cause
        return record


@dataclass(frozen=True, slots=True)
class GenerationRecord(Record):
    """The fence: the highest generation that has claimed the job, and the claim's unique id."""

    kind = "generation"
    remedy = "rebuild the fence from the epochs with lakestate.repair.rebuild_fence"
    generation: Generation
    claim_id: str
    claimed_at_ms: int
    state_id: str = ""
    """Identifies the state of the job from its first claim on. A job that is deleted and started again
    under the same name has another one. Empty for a job that is older than this field."""
    forked_from: str = ""
    """The epoch that a fork begins with, as `ForkPoint` writes it. Carried from claim to claim."""

    def __post_init__(self) -> None:
        if self.forked_from:
            ForkPoint.parse(self.forked_from)

    @property
    def fork_point(self) -> ForkPoint | None:
        """Where the job begins, if it is a fork."""
        return ForkPoint.parse(self.forked_from) if self.forked_from else None


@dataclass(frozen=True, slots=True)
class EpochRecord(Record):
    """The record whose creation publishes an epoch."""

    kind = "epoch"
    epoch: Epoch
    generation: Generation
    manifest: ObjectRef
    published_at_ms: int


@dataclass(frozen=True, slots=True)
class CommittedRecord(Record):
    """The marker that an epoch's sinks are committed."""

    kind = "committed"
    remedy = "nothing: the next start commits the epoch again, which is harmless"
    epoch: Epoch
    generation: Generation
    manifest: ObjectRef


@dataclass(frozen=True, slots=True)
class TagRecord(Record):
    """A name that keeps an epoch from retention."""

    kind = "tag"
    remedy = "restore the object, or delete the tag with ParquetBackend.delete_tag"
    name: str
    epoch: Epoch
    manifest: ObjectRef
    created_at_ms: int
    fork: str = ""
    """The job that needs the epoch, if the tag was made with a fork."""

    def __post_init__(self) -> None:
        require_name("tag", self.name)
        if self.fork:
            require_name("job", self.fork)


@dataclass(frozen=True, slots=True)
class BoundaryRecord(Record):
    """The oldest epoch that can be opened without a tag. It only ever advances."""

    kind = "boundary"
    remedy = "restore the object; without a copy, remove it while no driver runs: retention writes it again"
    oldest: Epoch
    generation: Generation
    change_id: str


def _json_value(value: object) -> object:
    match value:
        case ObjectRef():
            return {"path": value.path, "size_bytes": value.size_bytes, "checksum": f"{value.checksum:016x}"}
        case int():
            return int(value)
        case _:
            return value


def _field_value(name: str, value: Any) -> Any:
    match name:
        case "epoch" | "oldest":
            return Epoch(value)
        case "generation":
            return Generation(value)
        case "manifest":
            return _object_ref(value)
        case _ if name.endswith("_ms") and type(value) is not int:
            raise TypeError(f"{name} is {value!r}")
        case _ if not name.endswith("_ms") and type(value) is not str:
            raise TypeError(f"{name} is {value!r}")
        case _:
            return value


def _object_ref(value: Any) -> ObjectRef:
    path, size_bytes, checksum = value["path"], value["size_bytes"], value["checksum"]
    if type(path) is not str or type(size_bytes) is not int or type(checksum) is not str:
        raise TypeError(f"manifest is {value!r}")
    return ObjectRef(path, size_bytes, int(checksum, 16))
