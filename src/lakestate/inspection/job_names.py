"""Which jobs there are below a checkpoint URL, and errors about names that do not exist.

Jobs are found by listing folders, so that the cost follows the number of jobs and not of objects.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.job.objects import JobObjects
from lakestate.protocol.names import nearest_names, require_name
from lakestate.protocol.paths import EPOCH_RECORDS, FENCE
from lakestate.storage.parallel import map_in_parallel
from lakestate.storage.store import ObjectStore

JOBS_SHOWN = 10


def nearest_hint(name: str, known: Iterable[str]) -> str | None:
    """What somebody may have meant by a name that is not known, or None."""
    nearest = nearest_names(name, known)
    return f"did you mean {' or '.join(nearest)}?" if nearest else None


def list_job_names(store: ObjectStore) -> list[str]:
    """The jobs below the root of a store, in order: folders that hold epoch records or a fence.

    Takes a request for the root and one or two for each folder, in parallel.
    """
    folders = [name for name in store.list_folders() if _is_name(name)]
    is_job = map_in_parallel(lambda name: _is_job(store, name), folders)
    return [name for name, found in zip(folders, is_job, strict=True) if found]


def job_not_found(job: JobObjects) -> NotFoundError | None:
    """The error for a job without any object; None if the job has one."""
    if any(True for _ in job.store.list(job.store_path(""))):
        return None
    jobs = list_job_names(job.store)
    return NotFoundError(
        f"no such job below {job.store.url}",
        object_name=job.job_id,
        found=", ".join(jobs[:JOBS_SHOWN]) + (", …" if len(jobs) > JOBS_SHOWN else "") or "no job",
        action=nearest_hint(job.job_id, jobs) or "compare the checkpoint URL with the pipeline's",
    )


def _is_name(folder: str) -> bool:
    try:
        require_name("job", folder)
    except InvalidInputError:
        return False
    return True


def _is_job(store: ObjectStore, name: str) -> bool:
    if EPOCH_RECORDS.rstrip("/") in store.list_folders(f"{name}/"):
        return True
    # A job that has been claimed and has not published yet.
    try:
        store.head(f"{name}/{FENCE}")
    except NotFoundError:
        return False
    return True
