"""Recovery: read the newest epochs, decide, and return the epoch to continue from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from lakestate.coordinator.claim import check_fence
from lakestate.errors import ConflictError, CorruptionError, IncompatibleStateError
from lakestate.job.objects import JobObjects, Versioned
from lakestate.protocol.metadata import CompletionStatus, Manifest
from lakestate.protocol.paths import FENCE
from lakestate.protocol.publication import CommitPermit, Fenced
from lakestate.protocol.records import BoundaryRecord, CommittedRecord, EpochRecord, GenerationRecord
from lakestate.protocol.resolve import (
    Damaged,
    ObservedEpoch,
    Refuse,
    ReplayCommit,
    Resume,
    StartFresh,
    decide_recovery,
)
from lakestate.protocol.values import Epoch, Generation


@dataclass(frozen=True, slots=True)
class RecoveredEpoch:
    """The epoch to continue from. It has a `permit` if its commit must be finished first."""

    record: EpochRecord
    manifest: Manifest
    permit: CommitPermit | None


@dataclass(frozen=True, slots=True)
class NewestEpochs:
    """The newest epochs of a job as they are found, before anything is decided."""

    boundary: BoundaryRecord | None
    observed: tuple[ObservedEpoch, ...]
    """Newest first, down to the first that is intact."""
    intact: Manifest | None
    """The newest that can be restored."""
    lost: tuple[Epoch, str] | None
    """An epoch after all of these that was committed, and the name of its record, which is missing."""

    @property
    def last(self) -> Epoch | None:
        """The highest number that an epoch has had."""
        if self.lost is not None:
            return self.lost[0]
        return self.observed[0].epoch if self.observed else None


def observe_newest(job: JobObjects) -> NewestEpochs:
    """Read the newest epochs. Damage is a fact, not an error."""
    boundary = job.read_boundary()
    observed, intact = _observe(job, boundary)
    lost = None
    if observed or boundary is None:
        following = observed[0].epoch.next() if observed else Epoch(1)
        if job.is_marked_committed(following):
            if job.read_epoch(following) is not None:
                # Published since the epochs were listed.
                return observe_newest(job)
            lost = (following, job.url_of(job.paths.epoch_record(following)))
    return NewestEpochs(None if boundary is None else boundary.record, tuple(observed), intact, lost)


def recover_job(job: JobObjects, claim: GenerationRecord) -> RecoveredEpoch | None:
    """The newest epoch of the job, or None if it has never published one."""
    newest = observe_newest(job)
    decision = decide_recovery(claim.generation, newest.observed, newest.boundary, newest.lost)
    match decision:
        case StartFresh():
            return None
        case Resume(record):
            return RecoveredEpoch(record, require_same_state(job, claim, newest.intact), None)
        case ReplayCommit(permit):
            return RecoveredEpoch(permit.record, require_same_state(job, claim, newest.intact), permit)
        case Refuse():
            # What looks damaged to a fenced driver may only have been collected by its successor.
            check_fence(job, claim)
            raise _refusal(decision)
        case Fenced(by):
            check_fence(job, claim)
            raise _outdated_fence(job, claim, by)
        case _:
            assert_never(decision)


def refuse_finished(newest: Manifest | None) -> None:
    """Refuse a job whose newest epoch is final: operators were told that no rows follow."""
    if newest is not None and newest.status is CompletionStatus.FINAL:
        raise IncompatibleStateError(
            "the stream of this job has ended",
            object_name=f"job {newest.job_id}",
            found=f"epoch {newest.epoch}, in which operators were closed",
            expected="a job that was stopped without drain=True",
            action="to process more rows with the state that on_close left, start with reopen=True; to pause "
            "a job, stop it with finish_files=True",
        )


def refuse_finished_before_claim(newest: Manifest | None, job: JobObjects) -> None:
    """Refuse a job that is finished and committed, without disturbing a driver that has reopened it.

    If the commit of the last epoch is not complete, the job has to be claimed first, to complete it.
    """
    if newest is None or newest.status is not CompletionStatus.FINAL:
        return
    if job.is_marked_committed(newest.epoch):
        refuse_finished(newest)


def refuse_to_mute(newest: Manifest | None, job: JobObjects, *, is_muted: bool) -> None:
    """Refuse a muted driver of a job that writes its output: rows would be missing there."""
    if is_muted and (newest is None or not newest.is_muted):
        raise ConflictError(
            "the job writes its output, and cannot be muted",
            object_name=job.url_of(""),
            found="no epoch" if newest is None else f"epoch {newest.epoch}, which is not muted",
            expected="a fork that has not been asked to write",
            action="start it again",
        )


def _observe(
    job: JobObjects, boundary: Versioned[BoundaryRecord] | None
) -> tuple[list[ObservedEpoch], Manifest | None]:
    observed: list[ObservedEpoch] = []
    oldest = Epoch(1) if boundary is None else boundary.record.oldest
    for epoch in (epoch for epoch in reversed(job.list_epochs()) if epoch >= oldest):
        seen, manifest = _observe_epoch(job, epoch)
        observed.append(seen)
        if manifest is not None:
            return observed, manifest
    return observed, None


def _observe_epoch(job: JobObjects, epoch: Epoch) -> tuple[ObservedEpoch, Manifest | None]:
    """What exists of one epoch. A newer format is not damage: that error is raised."""
    try:
        record = job.read_epoch(epoch)
        if record is None:
            raise CorruptionError(
                "the epoch record has disappeared", object_name=job.url_of(job.paths.epoch_record(epoch))
            )
    except CorruptionError as damage:
        return ObservedEpoch(epoch, _damage_in(damage)), None
    try:
        manifest = job.read_manifest(record)
    except CorruptionError as damage:
        return ObservedEpoch(epoch, record, _damage_in(damage)), None
    return ObservedEpoch(epoch, record, committed=_is_committed(job, record)), manifest


def _is_committed(job: JobObjects, record: EpochRecord) -> bool:
    try:
        marker = job.read_committed(record.epoch)
    except (CorruptionError, IncompatibleStateError):
        # Committing again is harmless; trusting a damaged marker is not.
        return False
    return marker == CommittedRecord(job.job_id, record.epoch, record.generation, record.manifest)


def require_same_state(job: JobObjects, claim: GenerationRecord, manifest: Manifest | None) -> Manifest:
    """The epoch, if it belongs to the state that was claimed: sinks know their files by its identity."""
    assert manifest is not None, "only an intact epoch is continued"
    if manifest.state_id != claim.state_id:
        check_fence(job, claim)
        raise CorruptionError(
            "the fence and the newest epoch belong to different lives of this job",
            object_name=job.url_of(FENCE),
            found=f"state {claim.state_id or 'without id'}",
            expected=f"state {manifest.state_id or 'without id'}, like epoch {manifest.epoch}",
            action="rebuild the fence from the epochs with lakestate.repair.rebuild_fence",
        )
    return manifest


def refuse_outdated_claim(job: JobObjects, claim: GenerationRecord, newest: NewestEpochs) -> None:
    """Refuse to publish under a claim that is older than the newest epoch."""
    first = newest.observed[0].record if newest.observed else None
    if isinstance(first, EpochRecord) and first.generation > claim.generation:
        check_fence(job, claim)
        raise _outdated_fence(job, claim, first.generation)


def _damage_in(error: CorruptionError) -> Damaged:
    return Damaged(error.object_name or "unknown object", str(error))


def _refusal(decision: Refuse) -> CorruptionError:
    offered = (
        "no older epoch is intact, so that nothing but a copy helps"
        if decision.newest_good is None
        else f"or continue from epoch {decision.newest_good}, the newest intact one, with start(from_epoch="
        f"{decision.newest_good}): it says which output of later epochs is visible, and is then written again"
    )
    return CorruptionError(
        f"epoch {decision.epoch} is published but cannot be restored",
        object_name=decision.damage.object_name,
        found=decision.damage.reason,
        action=f"restore the object; {offered}",
    )


def _outdated_fence(job: JobObjects, claim: GenerationRecord, by: Generation) -> CorruptionError:
    """We have the job, yet a higher generation has published: the fence was set back."""
    return CorruptionError(
        "the fence is older than a published epoch",
        object_name=job.url_of(FENCE),
        found=f"generation {claim.generation}, which this driver got as the next one",
        expected=f"at least {by}, the generation of the newest epoch",
        action="rebuild the fence from the epochs with lakestate.repair.rebuild_fence",
    )
