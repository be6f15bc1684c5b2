"""Tags that somebody must not delete: those of forks that still refer to what they keep."""

from __future__ import annotations

from collections.abc import Iterator

from lakestate.coordinator.retention.retain import read_references
from lakestate.errors import ConflictError, CorruptionError, InvalidInputError
from lakestate.job.objects import JobObjects
from lakestate.protocol.paths import fork_tag, is_fork_tag
from lakestate.protocol.records import TagRecord
from lakestate.protocol.relative_path import other_jobs
from lakestate.protocol.resolve import Damaged
from lakestate.protocol.values import Epoch


def refuse_needed_tag(job: JobObjects, name: str) -> None:
    """Refuse to delete the tag of a fork while any job refers to what it keeps.

    For a person who deletes a tag: it reads the fence of every job below the checkpoint URL, and the
    metadata of every fork.
    """
    if not is_fork_tag(name):
        return
    try:
        tag = job.read_tag(job.paths.tag(name))
    except CorruptionError:
        # A tag that cannot be read keeps retention from deleting anything: deleting it is the way out.
        return
    needing = [] if tag is None or not tag.fork else list(_jobs_that_need(job, tag))
    if needing:
        raise ConflictError(
            f"a fork needs what the tag keeps of job {job.job_id}",
            object_name=name,
            found=f"job {', job '.join(needing)}",
            action="nothing: retention of the fork deletes the tag when no epoch of it needs the parent any "
            "more; if the fork is not wanted, delete all of its objects first",
        )


def _jobs_that_need(job: JobObjects, tag: TagRecord) -> Iterator[str]:
    for folder in job.store.list_folders():
        if folder != job.job_id and _needs(folder, job, tag):
            yield folder


def _needs(folder: str, job: JobObjects, tag: TagRecord) -> bool:
    try:
        other = JobObjects(job.store, folder)
        fence = other.read_fence()
    except (CorruptionError, InvalidInputError):
        # Not a job, or one whose fence does not say where it comes from: only its name is left to go by.
        return folder == tag.fork
    if fence is None or not fence.record.forked_from:
        return False
    epochs = other.list_epochs()
    if not epochs:
        return fork_tag(fence.record.state_id) == tag.name
    return any(_refers_to(job.job_id, other, epoch) for epoch in epochs)


def _refers_to(job_id: str, other: JobObjects, epoch: Epoch) -> bool:
    """Whether an epoch refers to a job. If that cannot be read, it does."""
    references = read_references(other, epoch)
    return isinstance(references, Damaged) or job_id in other_jobs(references)
