"""Tags: names that keep an epoch from retention."""

from __future__ import annotations

from lakestate.ambient import Ambient
from lakestate.errors import ConflictError, NotFoundError
from lakestate.job.named_epochs import require_tag_name
from lakestate.job.objects import JobObjects
from lakestate.protocol.records import TagRecord
from lakestate.protocol.values import Epoch
from lakestate.storage.store import AlreadyExists, StoredObject


def create_tag(job: JobObjects, name: str, epoch: Epoch, ambient: Ambient) -> TagRecord:
    """Keep an epoch under a name. Creating the same tag again returns the existing one.

    The boundary is read after the tag is created. Either retention has advanced it already, and we see
    that and withdraw the tag, or it advances later, and then reads the tags and sees ours. So an epoch
    before the boundary cannot be tagged, even if another tag still keeps it: that tag may be about to
    be deleted, and a retention that has read the tags would not see ours.

    A tag that existed before is never withdrawn: it may have kept the epoch for a long time. If a call
    created it and failed before it read the boundary, and retention is deleting the epoch at this very
    moment, our answer is wrong; once the epoch's record is deleted, it is NotFoundError.
    """
    path = job.paths.tag(name)
    require_tag_name(name)
    record = job.read_epoch(epoch)
    if record is None:
        raise _not_published_error(job, epoch)
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
    withdraw_tag(job, tag)
    raise NotFoundError(
        f"epoch {epoch} can no longer be tagged",
        object_name=job.url_of(path),
        found=f"retention may delete what lies before epoch {boundary.record.oldest}",
        action="tag a newer epoch",
    )


def _require_same(job: JobObjects, wanted: TagRecord, existing: StoredObject) -> TagRecord:
    """The existing tag, if it is the wanted one: then an earlier call has created it."""
    path = job.paths.tag(wanted.name)
    found = TagRecord.decode(existing.data, job.url_of(path), job.job_id)
    if (found.name, found.epoch, found.manifest) == (wanted.name, wanted.epoch, wanted.manifest):
        return found
    raise ConflictError(
        "the tag exists already",
        object_name=job.url_of(path),
        found=f"epoch {found.epoch}",
        action="choose another name, or delete it first",
    )


def withdraw_tag(job: JobObjects, tag: TagRecord) -> None:
    """Delete our tag, unless its name belongs to another tag by now.

    Stores have no conditional deletion, so two races remain. If our tag is deleted between the check
    and the deletion, and its name given to another epoch, that tag is deleted. And a caller that
    created the same tag meanwhile, and got it as existing, loses it too.
    """
    if job.read_tag(job.paths.tag(tag.name)) == tag:
        delete_tag(job, tag.name)


def _not_published_error(job: JobObjects, epoch: Epoch) -> NotFoundError:
    return NotFoundError(
        f"epoch {epoch} is not published", object_name=job.url_of(job.paths.epoch_record(epoch))
    )


def delete_tag(job: JobObjects, name: str) -> None:
    """Delete a tag. The next retention deletes its epoch, if nothing else keeps it."""
    job.store.delete_many([job.store_path(job.paths.tag(name))])
