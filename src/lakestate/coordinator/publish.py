"""Publishing an epoch: manifest, fence, epoch record, in this order. The record is what publishes it."""

from __future__ import annotations

from typing import assert_never

from lakestate.ambient import Ambient
from lakestate.codec import encode_manifest
from lakestate.coordinator.claim import check_fence
from lakestate.errors import (
    ConflictError,
    FencedError,
    InvalidInputError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.publication import (
    Collected,
    CommitPermit,
    Fenced,
    Published,
    Superseded,
    decide_publication,
)
from lakestate.protocol.records import EpochRecord, GenerationRecord
from lakestate.protocol.values import Epoch
from lakestate.storage.store import Created

RECORD_ATTEMPTS_MAX = 3
"""Each attempt has the store's own deadline; after this many the caller has to look at the store."""


def publish_epoch(
    job: JobObjects, claim: GenerationRecord, manifest: Manifest, ambient: Ambient
) -> Published | Superseded | Fenced | Collected:
    """Publish an epoch, or return why it is not published.

    Before the epoch record exists nothing refers to the manifest, so a crash leaves an orphan
    and the epoch runs again. Afterwards the epoch is durable, whatever happens to this process.
    Raises FencedError before the record is created, and OutcomeUnknownError if it may have been.
    """
    if manifest.generation != claim.generation:
        raise InvalidInputError(
            "a manifest carries the generation of its driver",
            found=manifest.generation,
            expected=claim.generation,
        )
    if manifest.state_id != claim.state_id:
        raise InvalidInputError(
            "a manifest carries the identity of the state that its driver has claimed",
            found=repr(manifest.state_id),
            expected=repr(claim.state_id),
        )
    ref = job.create_new(
        lambda attempt: job.paths.manifest(manifest.epoch, attempt),
        encode_manifest(manifest),
        ambient.new_id(),
    )
    check_fence(job, claim)
    ours = EpochRecord(job.job_id, manifest.epoch, claim.generation, ref, ambient.now_ms())
    existing = _create_record(job, ours)
    # Read after the creation: a driver that was suspended while another published its epoch, and
    # retention collected it, would find no record, create one, and commit old output again.
    try:
        boundary = job.read_boundary()
    except StorageUnavailableError as cause:
        raise _unknown_outcome(job, ours) from cause
    return decide_publication(ours, existing, None if boundary is None else boundary.record)


def require_published(
    outcome: Published | Superseded | Fenced | Collected, job: JobObjects, epoch: Epoch
) -> CommitPermit:
    """The permit of a published epoch. Raises the matching error for every other outcome."""
    name = job.url_of(job.paths.epoch_record(epoch))
    match outcome:
        case Published(permit):
            return permit
        case Superseded(record):
            raise ConflictError(
                f"epoch {epoch} was already published by another attempt",
                object_name=name,
                found=f"generation {record.generation}, manifest {record.manifest.path}",
                action="discard this attempt and start again from that epoch",
            )
        case Fenced(by):
            raise FencedError(
                "another driver has published this epoch", object_name=name, found=f"generation {by}"
            )
        case Collected(oldest):
            raise FencedError(
                "another driver published this epoch, and retention has collected it",
                object_name=name,
                found=f"epochs before {oldest} are gone",
            )
        case _:
            assert_never(outcome)


def _create_record(job: JobObjects, ours: EpochRecord) -> EpochRecord | None:
    """Create the record. None if it is ours now, otherwise the record that exists.

    After a lost answer the same bytes are created again, which is harmless: if the first write
    arrived after all, the second one is answered with the existing record, which is ours.
    """
    path = job.store_path(job.paths.epoch_record(ours.epoch))
    lost: OutcomeUnknownError | None = None
    for _ in range(RECORD_ATTEMPTS_MAX):
        try:
            outcome = job.store.create(path, ours.encode())
        except OutcomeUnknownError as error:
            lost = error
        except StorageUnavailableError as error:
            if lost is None:
                raise
            # This call changed nothing, but an earlier one may have.
            raise _unknown_outcome(job, ours) from error
        else:
            return (
                None
                if isinstance(outcome, Created)
                else job.decode_epoch_record(ours.epoch, outcome.existing.data)
            )
    raise _unknown_outcome(job, ours) from lost


def _unknown_outcome(job: JobObjects, ours: EpochRecord) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"epoch {ours.epoch} may or may not be published",
        object_name=job.url_of(job.paths.epoch_record(ours.epoch)),
        action="delete nothing of this epoch; recover, and continue from what is found",
    )
