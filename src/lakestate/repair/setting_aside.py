"""Moving damaged objects aside, below `set-aside/` of their job, and back again.

Only objects whose absence is noticed like their damage: whatever needs one is refused by name. An object
whose absence means something else stays where it is, or a job would silently continue from another epoch,
or delete what a tag keeps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.errors import NotFoundError
from lakestate.job.objects import JobObjects
from lakestate.protocol.paths import SET_ASIDE, ObjectKind, parse_object_name
from lakestate.storage.store import AlreadyExists, ObjectInfo

MOVABLE = frozenset(
    (ObjectKind.DATA, ObjectKind.SUBTASK_METADATA, ObjectKind.MANIFEST, ObjectKind.ENGINE_LOG)
)
"""What an epoch refers to by name, size and checksum."""

WHY_OTHERS_STAY: Mapping[ObjectKind, str] = {
    ObjectKind.FENCE: "it is rebuilt instead",
    ObjectKind.EPOCH_RECORD: "without it the job would continue from an earlier epoch and not say so",
    ObjectKind.COMMITTED: "without it an epoch whose record is lost would not be noticed",
    ObjectKind.TAG: "without it retention could delete the epoch that it keeps; give it up with untag",
    ObjectKind.BOUNDARY: "without it epochs that retention has passed would count again",
}

_log = logging.getLogger("lakestate.repair")


@dataclass(frozen=True, slots=True)
class AsideObject:
    """An object that a repair has moved or copied aside."""

    path: str
    """Where it was, below the root of the job."""
    aside: str
    """Where it is now."""
    size_bytes: int
    is_restorable: bool
    """Whether it can be put back: nothing has taken its place."""


def object_versions(job: JobObjects) -> dict[str, ObjectInfo]:
    """The objects of a job as they are now. What changes afterwards is not set aside."""
    prefix = job.store_path("")
    return {info.path.removeprefix(prefix): info for info in job.store.list(prefix)}


def set_aside(
    backend: ParquetBackend, job_id: str, paths: Iterable[str], seen: Mapping[str, ObjectInfo]
) -> list[AsideObject]:
    """Move damaged objects aside, each with its bytes as they are.

    `seen` is what `object_versions` said before the damage was found: an object that has changed since, or is
    gone, stays, because somebody may have restored it. The copy is made before the object goes, so that a
    crash leaves both; calling it again moves the rest.
    """
    job, repair = backend.objects(job_id), backend.ambient.new_id()
    moved: list[AsideObject] = []
    for path in paths:
        if parse_object_name(path).kind not in MOVABLE or not _is_unchanged(job, path, seen):
            continue
        aside = job.paths.set_aside(path, repair)
        job.store.copy(job.store_path(path), job.store_path(aside))
        job.store.delete_many([job.store_path(path)])
        _log.warning("%s is damaged, and was moved to %s", job.url_of(path), job.url_of(aside))
        moved.append(AsideObject(path, aside, seen[path].size_bytes, is_restorable=True))
    return moved


def list_set_aside(job: JobObjects) -> list[AsideObject]:
    """What repairs have set aside, in the order of its paths."""
    present = object_versions(job)
    found = []
    for aside, info in present.items():
        if aside.startswith(SET_ASIDE):
            path = aside.removeprefix(SET_ASIDE).partition("/")[2]
            can_return = parse_object_name(path).kind in MOVABLE and path not in present
            found.append(AsideObject(path, aside, info.size_bytes, can_return))
    return sorted(found, key=lambda each: (each.path, each.aside))


def put_back(backend: ParquetBackend, job_id: str) -> list[AsideObject]:
    """Undo `set_aside`: move every object back whose place is still empty. Returns those."""
    job = backend.objects(job_id)
    returned: list[AsideObject] = []
    for each in list_set_aside(job):
        if not each.is_restorable:
            continue
        data = job.store.get(job.store_path(each.aside)).data
        # Created, not put: an object that was restored from a copy meanwhile stays.
        if isinstance(job.store.create(job.store_path(each.path), data), AlreadyExists):
            continue
        job.store.delete_many([job.store_path(each.aside)])
        returned.append(each)
    return returned


def _is_unchanged(job: JobObjects, path: str, seen: Mapping[str, ObjectInfo]) -> bool:
    try:
        found = job.store.head(job.store_path(path))
    except NotFoundError:
        return False
    return path in seen and seen[path].version == found.version
