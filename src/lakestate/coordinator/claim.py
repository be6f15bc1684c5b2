"""Claiming a generation: the compare-and-swap that fences every earlier driver."""

from __future__ import annotations

from contextlib import suppress

from lakestate.ambient import Ambient
from lakestate.errors import ConflictError, CorruptionError, FencedError, OutcomeUnknownError
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.paths import FENCE
from lakestate.protocol.publication import Fenced, decide_to_publish
from lakestate.protocol.records import GenerationRecord
from lakestate.protocol.values import FIRST_GENERATION


def claim_generation(job: JobObjects, ambient: Ambient) -> GenerationRecord:
    """Take the next generation of the job. From here on every lower one is fenced.

    Several drivers may try at once: each gets its own generation, and the highest one keeps the job.
    """
    claim_id = ambient.new_id()
    while True:
        fence = job.read_fence()
        if fence is not None and fence.record.claim_id == claim_id:
            return fence.record
        if fence is None:
            generation, (state_id, forked_from) = FIRST_GENERATION, _first_identity(job, ambient)
        else:
            _refuse_incomplete_fork(job, fence.record)
            generation, state_id = fence.record.generation.next(), fence.record.state_id
            forked_from = fence.record.forked_from
        claim = GenerationRecord(job.job_id, generation, claim_id, ambient.now_ms(), state_id, forked_from)
        try:
            if job.swap(FENCE, claim, fence):
                return claim
        except OutcomeUnknownError:
            # The claim id decides: if the fence carries it, our write succeeded.
            continue


def _refuse_incomplete_fork(job: JobObjects, fence: GenerationRecord) -> None:
    """Refuse a fork that has no epoch yet: its driver would begin with empty state, beside the fork's."""
    if fence.forked_from and not job.list_epochs():
        raise ConflictError(
            f"job {job.job_id} is a fork that is not complete, or whose epochs are gone",
            object_name=job.url_of(FENCE),
            found=f"a fork of {fence.forked_from}, and no epoch",
            action="make the fork again, with the same arguments: that completes it",
        )


def _first_identity(job: JobObjects, ambient: Ambient) -> tuple[str, str]:
    """A new identity, unless there are epochs: then only the fence is lost, and the state keeps its own.

    Also where the state comes from, if the job is a fork.
    """
    for epoch in reversed(job.list_epochs()):
        with suppress(CorruptionError):
            record = job.read_epoch(epoch)
            if record is not None:
                return identity_in(job.read_manifest(record))
    return ambient.new_id(), ""


def identity_in(manifest: Manifest) -> tuple[str, str]:
    """The identity of the state and where it comes from, as the fence says them."""
    forked = manifest.forked_from
    return manifest.state_id, "" if forked is None else str(forked.point)


def check_fence(job: JobObjects, claim: GenerationRecord) -> None:
    """Raise FencedError if another driver has claimed the job since."""
    fence = job.read_fence()
    if fence is None:
        raise _fenced_error(job, claim, "no fence: the job was deleted")
    decision = decide_to_publish(claim, fence.record)
    if isinstance(decision, Fenced):
        raise _fenced_error(job, claim, f"generation {decision.by}")


def _fenced_error(job: JobObjects, claim: GenerationRecord, found: str) -> FencedError:
    return FencedError(
        "another driver has taken over this job",
        object_name=job.url_of(FENCE),
        found=found,
        expected=f"generation {claim.generation}, which this driver claimed",
        action="let the other driver run; this one has stopped and changed nothing more",
    )
