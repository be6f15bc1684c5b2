"""Opening the published epochs of a job for reading, while retention may be deleting older ones."""

from __future__ import annotations

from lakestate.errors import CorruptionError, NotFoundError
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.records import EpochRecord
from lakestate.protocol.values import Epoch

EPOCHS_SHOWN = 5
"""How many epochs an error offers instead of the one that cannot be opened."""


def open_epoch(job: JobObjects, epoch: Epoch) -> tuple[EpochRecord, Manifest]:
    """The record and manifest of a published epoch, if it may still be opened.

    The boundary is read after the manifest: if it has passed the epoch in the meantime, retention
    may be deleting the epoch's files.
    """
    record = job.read_epoch(epoch)
    if record is None:
        raise _not_open_error(job, epoch)
    try:
        manifest = job.read_manifest(record)
    except CorruptionError as damage:
        # A manifest that retention has just deleted is not damage.
        if _is_collected(job, epoch):
            raise _not_open_error(job, epoch) from damage
        raise
    if _is_collected(job, epoch):
        raise _not_open_error(job, epoch)
    return record, manifest


def open_newest_epoch(job: JobObjects) -> Manifest | None:
    """The manifest of the newest published epoch, or None if the job has not published any."""
    epochs = job.list_epochs()
    while epochs:
        try:
            return open_epoch(job, epochs[-1])[1]
        except NotFoundError:
            # Retention may have passed it since it was listed; then there is a newer one.
            newest, epochs = epochs[-1], job.list_epochs()
            if epochs and epochs[-1] == newest:
                raise
    return None


def _is_collected(job: JobObjects, epoch: Epoch) -> bool:
    boundary = job.read_boundary()
    passed = boundary is not None and epoch < boundary.record.oldest
    return passed and epoch not in {tag.epoch for tag in job.read_tags()}


def _not_open_error(job: JobObjects, epoch: Epoch) -> NotFoundError:
    newest = [str(open_) for open_ in reversed(job.list_epochs()) if open_ != epoch][:EPOCHS_SHOWN]
    return NotFoundError(
        f"epoch {epoch} cannot be opened",
        object_name=job.url_of(job.paths.epoch_record(epoch)),
        found=f"newest epochs {', '.join(newest)}" if newest else "no published epoch",
        action="open one of those, or a tag",
    )
