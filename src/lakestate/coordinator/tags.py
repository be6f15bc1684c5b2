"""Tags: names that keep an epoch from retention."""

from __future__ import annotations

from lakestate.ambient import Ambient
from lakestate.errors import ConflictError, NotFoundError
from lakestate.job.objects import JobObjects
from lakestate.protocol.records import TagRecord
from lakestate.protocol.values import Epoch
from lakestate.storage.store import AlreadyExists, StoredObject


def create_tag(job: JobObjects, name: str, epoch: Epoch, ambient: Ambient) -> TagRecord:
    """Keep an epoch under a name. Doing it again is fine: the tag that is there is the answer.

    The boundary is read after the tag exists. Either retention advanced it before, and we see
    that and take the tag back, or it advances later, and then reads the tags and sees ours.
    So an epoch before the boundary cannot be tagged, even if another tag still keeps it: that
    one may be on its way out, and a retention that has read the tags would not see ours.

    A tag that was there before us is never taken back: it may have kept the epoch for long. If it is
    of a call that died before it read the boundary, and a retention is deleting the epoch at this
    very moment, our answer is wrong; once the epoch's record is gone, it is NotFoundError.
    """
    record = job.read_epoch(epoch)
    if record is None:
        raise _not_published_error(job, epoch)
    path = job.paths.tag(name)
    tag = TagRecord(job.job_id, name, epoch, record.manifest, ambient.now_ms())
    outcome = job.store.create(job.store_path(path), tag.encode())
    if isinstance(outcome, AlreadyExists):
        tag = _require_same(job, tag, outcome.existing)
    boundary = job.read_boundary()
    if boundary is None or epoch >= boundary.record.oldest:
        return tag
    if isinstance(outcome, AlreadyExists):
        if job.read_epoch(epoch) is None:
            raise _not_published_error(job, epoch)
        return tag
    _withdraw(job, tag)
    raise NotFoundError(
        f"epoch {epoch} can no longer be tagged",
        object_name=job.url_of(path),
        found=f"retention may delete what lies before epoch {boundary.record.oldest}",
        action="tag a newer epoch",
    )


def _require_same(job: JobObjects, wanted: TagRecord, existing: StoredObject) -> TagRecord:
    """The tag that is there, if it keeps what is wanted: then a call before ours has made it."""
    path = job.paths.tag(wanted.name)
    found = TagRecord.decode(existing.data, job.url_of(path), job.job_id)
    if (found.name, found.epoch, found.manifest) == (wanted.name, wanted.epoch, wanted.manifest):
        return found
    raise ConflictError(
        "the tag exists",
        object_name=job.url_of(path),
        found=f"epoch {found.epoch}",
        action="choose another name, or delete it first",
    )


def _withdraw(job: JobObjects, tag: TagRecord) -> None:
    """Delete our tag, unless another stands in its place by now.

    Stores have no conditional deletion. What remains: if, between the look and the deletion, our tag
    is deleted and its name given to another epoch, that tag goes. And whoever asked for the same tag
    meanwhile, and was told that it is there, loses it with us.
    """
    if job.read_tag(job.paths.tag(tag.name)) == tag:
        delete_tag(job, tag.name)


def _not_published_error(job: JobObjects, epoch: Epoch) -> NotFoundError:
    return NotFoundError(
        f"epoch {epoch} is not published", object_name=job.url_of(job.paths.epoch_record(epoch))
    )


def delete_tag(job: JobObjects, name: str) -> None:
    """Let go of a tag. The epoch goes with the next retention, if nothing else keeps it."""
    job.store.delete_many([job.store_path(job.paths.tag(name))])
