"""What keeps the objects that a fork shares with its parent: a tag in the parent.

The tag keeps the whole epoch that the fork was made from. The fork gives it up when none of its retained
epochs refers to another job any more. So retention of the parent need not read its forks, and a fork of a
fork is safe: while it needs anything, the fork between them keeps the epoch that it was made from, and with
it the tag in the job before.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakestate.ambient import Ambient
from lakestate.coordinator.retention.tags import delete_tag, withdraw_tag
from lakestate.errors import NotFoundError
from lakestate.job.objects import JobObjects
from lakestate.protocol.paths import fork_tag
from lakestate.protocol.records import EpochRecord, GenerationRecord, TagRecord
from lakestate.protocol.relative_path import other_jobs
from lakestate.protocol.values import ForkPoint


def keep_for_fork(
    parent: JobObjects, record: EpochRecord, fork: str, state_id: str, ambient: Ambient
) -> TagRecord:
    """Keep an epoch for a fork that is about to be made.

    Unlike other tags, it is also given for an epoch that only a tag keeps. The other tag may be deleted, and
    retention may be about to delete the epoch: it deletes the record of the epoch first, and then reads the
    tags once more. So if the record is there after our tag was made, retention sees the tag before it
    deletes anything that the fork needs.
    """
    name = fork_tag(state_id)
    tag = TagRecord(parent.job_id, name, record.epoch, record.manifest, ambient.now_ms(), fork)
    parent.store.create(parent.store_path(parent.paths.tag(name)), tag.encode())
    if parent.read_epoch(record.epoch) == record and _is_open(parent, tag):
        return tag
    withdraw_tag(parent, tag)
    raise NotFoundError(
        f"epoch {record.epoch} of job {parent.job_id} can no longer be forked",
        object_name=parent.url_of(parent.paths.epoch_record(record.epoch)),
        found="retention deletes it at this moment",
        action="fork a newer epoch; nothing was made",
    )


def _is_open(parent: JobObjects, ours: TagRecord) -> bool:
    """Whether the epoch can be opened without our tag."""
    boundary = parent.read_boundary()
    if boundary is None or ours.epoch >= boundary.record.oldest:
        return True
    return any(tag.epoch == ours.epoch and tag.name != ours.name for tag in parent.read_tags())


def release_parent(job: JobObjects, claim: GenerationRecord, needed: Iterable[str]) -> None:
    """Let the parent delete what it kept for a fork, once no retained epoch of the fork refers to it.

    The name of the tag is that of this fork alone, so doing it again, or late, harms nobody.
    """
    point = claim.fork_point
    if point is not None and not other_jobs(needed):
        delete_tag(JobObjects(job.store, point.job_id), fork_tag(claim.state_id))


def delete_useless_tags(parent: JobObjects, fork: JobObjects, point: ForkPoint) -> None:
    """Delete the tags of attempts to make a fork that failed before they had a fence.

    The tags are listed first: what was begun after the fence was read is not touched.
    """
    found = [tag for tag in parent.read_tags() if tag.fork == fork.job_id]
    fence = fork.read_fence()
    if fence is None or fence.record.fork_point != point:
        return
    for tag in found:
        if tag.name != fork_tag(fence.record.state_id):
            delete_tag(parent, tag.name)
