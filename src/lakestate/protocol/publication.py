"""Decides whether a driver may publish an epoch, and what the store's answer means. Pure.

Publishing is a single act: creating the epoch record. Only a decision in this module or in `resolve`
hands out a `CommitPermit`, and nothing commits a sink without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lakestate.protocol.records import BoundaryRecord, EpochRecord, GenerationRecord
from lakestate.protocol.values import Epoch, Generation, ObjectRef

_ISSUER: Final = object()


@dataclass(frozen=True, slots=True)
class CommitPermit:
    """The right to commit the sinks of one published epoch."""

    record: EpochRecord
    _issuer: object = None

    def __post_init__(self) -> None:
        if self._issuer is not _ISSUER:
            raise AssertionError("a commit permit is handed out by a decision, never made by hand")

    @property
    def job_id(self) -> str:
        """The job whose sinks may be committed."""
        return self.record.job_id

    @property
    def epoch(self) -> Epoch:
        """The epoch that may be committed."""
        return self.record.epoch

    @property
    def manifest(self) -> ObjectRef:
        """The manifest that says what to commit."""
        return self.record.manifest


@dataclass(frozen=True, slots=True)
class MayPublish:
    """The fence is still ours: create the epoch record."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """A higher generation owns the job: stop and change nothing more."""

    by: Generation


@dataclass(frozen=True, slots=True)
class Published:
    """The epoch is durable. Commit its sinks."""

    permit: CommitPermit


@dataclass(frozen=True, slots=True)
class Superseded:
    """Another manifest was published for this epoch, and it is the valid one.

    Our work is discarded. The job starts again from that manifest, including its offsets.
    """

    record: EpochRecord


@dataclass(frozen=True, slots=True)
class Collected:
    """We created the record of an epoch that was published and collected long ago.

    Only a driver that was suspended for many epochs sees this. The record is void, because it is
    older than the retention boundary, and nothing may be committed.
    """

    oldest: Epoch


def decide_to_publish(claim: GenerationRecord, fence: GenerationRecord) -> MayPublish | Fenced:
    """Decide from the fence, which is read again just before publishing."""
    if fence.generation > claim.generation or fence.claim_id != claim.claim_id:
        return Fenced(fence.generation)
    return MayPublish()


def decide_publication(
    ours: EpochRecord, existing: EpochRecord | None, boundary: BoundaryRecord | None
) -> Published | Superseded | Fenced | Collected:
    """Decide from the result of creating the epoch record.

    `existing` is None if the record was created, and otherwise the existing record. `boundary` is
    read after the creation.
    """
    if existing is None or existing.manifest == ours.manifest:
        if boundary is not None and boundary.oldest > ours.epoch:
            return Collected(boundary.oldest)
        return Published(CommitPermit(ours if existing is None else existing, _ISSUER))
    if existing.generation > ours.generation:
        return Fenced(existing.generation)
    return Superseded(existing)


def replay_permit(record: EpochRecord) -> CommitPermit:
    """The permit to commit a published epoch again, because its commit may be incomplete."""
    return CommitPermit(record, _ISSUER)
