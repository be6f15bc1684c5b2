"""Retention: advance the boundary, read the tags again, classify everything, then delete."""

from __future__ import annotations

from lakestate.ambient import Ambient
from lakestate.coordinator.generation import check_fence
from lakestate.errors import ConflictError, CorruptionError, IncompatibleStateError, OutcomeUnknownError
from lakestate.protocol.paths import BOUNDARY
from lakestate.protocol.records import BoundaryRecord, EpochRecord, GenerationRecord
from lakestate.protocol.resolve import Damaged
from lakestate.protocol.retention import (
    RetentionFacts,
    RetentionPlan,
    RetentionPolicy,
    RetentionRefused,
    next_boundary,
    plan_retention,
)
from lakestate.protocol.values import Epoch
from lakestate.tables.job_objects import JobObjects


def retain(
    job: JobObjects, mine: GenerationRecord, policy: RetentionPolicy, ambient: Ambient
) -> RetentionPlan | RetentionRefused | None:
    """Collect what no retained epoch needs. None if there is nothing to advance.

    A crash between any two steps is harmless: the boundary only says what may no longer be
    opened, and what was not deleted is found again by the next listing.
    """
    boundary = _advance_boundary(job, mine, policy, ambient)
    if boundary is None:
        return None
    plan = plan_retention(observe(job, boundary))
    if isinstance(plan, RetentionPlan):
        check_fence(job, mine)
        job.store.delete_many(job.full(path) for path in plan.delete_first)
        job.store.delete_many(job.full(path) for path in plan.delete_then)
    return plan


def preview(job: JobObjects, policy: RetentionPolicy) -> RetentionPlan | RetentionRefused | None:
    """What `retain` would do now. Touches nothing."""
    stored = job.read_boundary()
    current = None if stored is None else stored.record.oldest
    boundary = next_boundary(current, job.list_epochs(), policy) or current
    return None if boundary is None else plan_retention(observe(job, boundary))


def observe(job: JobObjects, boundary: Epoch) -> RetentionFacts:
    """Read everything that the plan needs. Unreadable metadata becomes a fact, not an error."""
    published = job.list_epochs()
    tagged = {tag.epoch for tag in job.read_tags()}
    prefix = f"{job.job_id}/"
    objects = [info.path.removeprefix(prefix) for info in job.store.list(prefix)]
    retained = [epoch for epoch in published if epoch >= boundary or epoch in tagged]
    references = {epoch: references_of(job, epoch) for epoch in retained}
    return RetentionFacts(boundary, published, tagged, references, objects)


def references_of(job: JobObjects, epoch: Epoch) -> frozenset[str] | Damaged:
    """Every object that restoring an epoch needs, or the damage that hides them."""
    try:
        record = job.read_epoch(epoch)
        if record is None:
            return Damaged(job.paths.epoch_record(epoch), "the record vanished while it was read")
        return _references(job, record)
    except (CorruptionError, IncompatibleStateError) as damage:
        return Damaged(damage.object_name or f"epoch {epoch}", str(damage))


def _references(job: JobObjects, record: EpochRecord) -> frozenset[str]:
    manifest = job.read_manifest(record)
    entries = [subtask for operator in manifest.operators for subtask in operator.subtasks]
    paths = {job.paths.epoch_record(record.epoch), record.manifest.path, job.paths.committed(record.epoch)}
    paths.update(entry.metadata.path for entry in entries)
    for metadata in job.read_subtasks(entries):
        paths.update(file.path for table in metadata.tables for file in table.files)
    return frozenset(paths)


def _advance_boundary(
    job: JobObjects, mine: GenerationRecord, policy: RetentionPolicy, ambient: Ambient
) -> Epoch | None:
    """Store the new boundary. None if it stays; an earlier crash is made good by the next advance."""
    stored = job.read_boundary()
    current = None if stored is None else stored.record.oldest
    wanted = next_boundary(current, job.list_epochs(), policy)
    if wanted is None:
        return None
    check_fence(job, mine)
    record = BoundaryRecord(job.job_id, wanted, mine.generation, ambient.new_id())
    try:
        advanced = job.swap(BOUNDARY, record, stored)
    except OutcomeUnknownError:
        seen = job.read_boundary()
        return wanted if seen is not None and seen.record == record else None
    if not advanced:
        raise ConflictError(
            "somebody else advanced the retention boundary",
            object_name=job.shown(BOUNDARY),
            action="nothing was deleted; retention will run again",
        )
    return wanted
