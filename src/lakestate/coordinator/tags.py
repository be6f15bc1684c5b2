"""Tags: names that keep an epoch from retention."""

from __future__ import annotations

from lakestate.ambient import Ambient
from lakestate.errors import ConflictError, NotFoundError
from lakestate.protocol.records import TagRecord
from lakestate.protocol.values import Epoch
from lakestate.storage.store import AlreadyExists
from lakestate.tables.job_objects import JobObjects


def create_tag(job: JobObjects, name: str, epoch: Epoch, ambient: Ambient) -> TagRecord:
    """Keep an epoch under a name.

    The boundary is read after the tag exists. Either retention advanced it before, and we see
    that and take the tag back, or it advances later, and then reads the tags and sees ours.
    So an epoch before the boundary cannot be tagged, even if another tag still keeps it: that
    one may be on its way out, and a retention that has read the tags would not see ours.
    """
    record = job.read_epoch(epoch)
    if record is None:
        raise NotFoundError(
            f"epoch {epoch} is not published", object_name=job.shown(job.paths.epoch_record(epoch))
        )
    path = job.paths.tag(name)
    tag = TagRecord(job.job_id, name, epoch, record.manifest, ambient.now_ms())
    outcome = job.store.create(job.full(path), tag.encode())
    if isinstance(outcome, AlreadyExists):
        raise ConflictError(
            "the tag exists",
            object_name=job.shown(path),
            found=f"epoch {TagRecord.decode(outcome.existing.data, path, job.job_id).epoch}",
            action="choose another name, or delete it first",
        )
    boundary = job.read_boundary()
    if boundary is not None and epoch < boundary.record.oldest:
        delete_tag(job, name)
        raise NotFoundError(
            f"epoch {epoch} can no longer be tagged",
            object_name=job.shown(path),
            found=f"retention may delete what lies before epoch {boundary.record.oldest}",
            action="tag a newer epoch",
        )
    return tag


def delete_tag(job: JobObjects, name: str) -> None:
    """Let go of a tag. The epoch goes with the next retention, if nothing else keeps it."""
    job.store.delete_many([job.full(job.paths.tag(name))])
