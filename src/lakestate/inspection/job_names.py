"""Errors about jobs and tables that do not exist, with the names that come nearest."""

from __future__ import annotations

from collections.abc import Iterable

from lakestate.errors import NotFoundError
from lakestate.job.objects import JobObjects
from lakestate.protocol.names import nearest_names
from lakestate.protocol.paths import EPOCH_RECORDS

JOBS_SHOWN = 10


def nearest_hint(name: str, known: Iterable[str]) -> str | None:
    """What somebody may have meant by a name that is not known, or None."""
    nearest = nearest_names(name, known)
    return f"did you mean {' or '.join(nearest)}?" if nearest else None


def job_not_found(job: JobObjects) -> NotFoundError | None:
    """The error for a job without any object; None if the job has one.

    Its neighbours are found by listing everything below the checkpoint URL, which is slow if there is
    much: only somebody who made a mistake waits for it.
    """
    if any(True for _ in job.store.list(job.store_path(""))):
        return None
    marker = f"/{EPOCH_RECORDS}"
    jobs = sorted({info.path.split(marker)[0] for info in job.store.list() if marker in info.path})
    return NotFoundError(
        f"no such job below {job.store.url}",
        object_name=job.job_id,
        found=", ".join(jobs[:JOBS_SHOWN]) + (", …" if len(jobs) > JOBS_SHOWN else "") or "no job",
        action=nearest_hint(job.job_id, jobs) or "compare the checkpoint URL with the pipeline's",
    )
