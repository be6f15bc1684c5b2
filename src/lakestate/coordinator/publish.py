"""Publishing an epoch: manifest, fence, epoch record, in this order. The record is the one act."""

from __future__ import annotations

from lakestate.ambient import Ambient
from lakestate.codec import encode_manifest
from lakestate.coordinator.generation import check_fence
from lakestate.errors import InvalidInputError, OutcomeUnknownError
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.publication import Collected, Fenced, Published, Superseded, publication
from lakestate.protocol.records import EpochRecord, GenerationRecord
from lakestate.storage.store import AlreadyExists
from lakestate.tables.job_objects import JobObjects


def publish_epoch(
    job: JobObjects, mine: GenerationRecord, manifest: Manifest, ambient: Ambient
) -> Published | Superseded | Fenced | Collected:
    """Make an epoch durable, or say why it is not.

    Before the epoch record exists nothing refers to the manifest, so a crash leaves an orphan
    and the epoch runs again. After it, the epoch stands, whatever happens to this process.
    """
    if manifest.generation != mine.generation:
        raise InvalidInputError(
            "a manifest carries the generation of its driver",
            found=manifest.generation,
            expected=mine.generation,
        )
    ref = job.create_new(
        lambda attempt: job.paths.manifest(manifest.epoch, attempt),
        encode_manifest(manifest),
        ambient.new_id(),
    )
    check_fence(job, mine)
    ours = EpochRecord(job.job_id, manifest.epoch, mine.generation, ref, ambient.now_ms())
    existing = _create_record(job, ours)
    # Read after the creation: a driver that slept while its epoch was published by another and
    # collected again would find no record, create one, and commit old output a second time.
    boundary = job.read_boundary()
    return publication(ours, existing, None if boundary is None else boundary.record)


def _create_record(job: JobObjects, ours: EpochRecord) -> EpochRecord | None:
    """Create the record. None if it is ours now, and otherwise the one that is there."""
    path = job.paths.epoch_record(ours.epoch)
    while True:
        try:
            outcome = job.store.create(job.full(path), ours.encode())
        except OutcomeUnknownError:
            # Creating the same bytes again is harmless: if the first one arrived after all, the
            # second is told what is there, and finds itself.
            continue
        if isinstance(outcome, AlreadyExists):
            return EpochRecord.decode(outcome.existing.data, job.shown(path), job.job_id)
        return None
