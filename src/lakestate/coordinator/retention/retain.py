"""Retention: advance the boundary, read the tags again, classify every object, then delete.

Records of epochs are deleted first, and then the tags are read once more: somebody may have made a fork of an
epoch until its record was gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from lakestate.ambient import Ambient
from lakestate.codec import decode_manifest
from lakestate.coordinator.claim import check_fence
from lakestate.coordinator.retention.forks import release_parent
from lakestate.coordinator.retention.known_references import KnownReferences
from lakestate.errors import ConflictError, CorruptionError, IncompatibleStateError, OutcomeUnknownError
from lakestate.job.objects import JobObjects, Versioned
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.paths import BOUNDARY, TAGS, ObjectKind, parse_object_name
from lakestate.protocol.records import BoundaryRecord, EpochRecord, GenerationRecord, TagRecord
from lakestate.protocol.resolve import Damaged
from lakestate.protocol.retention import (
    RetentionFacts,
    RetentionPlan,
    RetentionPolicy,
    RetentionRefused,
    needed_objects,
    next_boundary,
    plan_retention,
)
from lakestate.protocol.values import Epoch
from lakestate.tables.registry import files_to_keep

Observe = Callable[[JobObjects, Epoch, Sequence[Epoch], KnownReferences], RetentionFacts]
"""Reads the facts for a boundary: of the published epochs, what is known of them, and which objects."""


def retain_epochs(
    job: JobObjects,
    claim: GenerationRecord,
    policy: RetentionPolicy,
    ambient: Ambient,
    in_flight: Epoch | None = None,
    known: KnownReferences | None = None,
) -> RetentionPlan | RetentionRefused | None:
    """Delete what no retained epoch needs. None if there have never been enough epochs.

    `in_flight` is the epoch after which a merge is named that is running or not yet swapped in.
    `known` is what the caller's earlier retentions of the same job have read. A crash between any
    two steps is harmless: the boundary only says what may no longer be opened, and the next
    retention finds what was not deleted.
    """
    return _retain(job, claim, policy, ambient, in_flight, known or KnownReferences(), observe_listed)


def retain_known_epochs(
    job: JobObjects,
    claim: GenerationRecord,
    policy: RetentionPolicy,
    ambient: Ambient,
    in_flight: Epoch | None,
    known: KnownReferences,
) -> RetentionPlan | RetentionRefused | None:
    """Like `retain_epochs`, without a listing of all objects of the job.

    Deletes the objects that only epochs needed that are known and go now. What attempts left behind
    that no epoch refers to stays until `retain_epochs` lists everything.
    """
    return _retain(job, claim, policy, ambient, in_flight, known, observe_known)


def _retain(
    job: JobObjects,
    claim: GenerationRecord,
    policy: RetentionPolicy,
    ambient: Ambient,
    in_flight: Epoch | None,
    known: KnownReferences,
    observe: Observe,
) -> RetentionPlan | RetentionRefused | None:
    stored, published = job.read_boundary(), job.list_epochs()
    current = None if stored is None else stored.record.oldest
    wanted = next_boundary(current, published, policy, in_flight) or current
    if wanted is None:
        return None
    facts = observe(job, _later_boundary(wanted, stored), published, known)
    return _carry_out(job, claim, ambient, facts, stored)


def retain_from(
    job: JobObjects,
    claim: GenerationRecord,
    wanted: Epoch,
    ambient: Ambient,
    known: KnownReferences | None = None,
) -> RetentionPlan | RetentionRefused:
    """Delete what neither an epoch from `wanted` on nor a tagged one needs.

    If the boundary is already further on, what an earlier retention left behind is deleted.
    """
    stored = job.read_boundary()
    facts = observe_objects(job, _later_boundary(wanted, stored), known)
    return _carry_out(job, claim, ambient, facts, stored)


def retain_sparing_merges(
    job: JobObjects,
    claim: GenerationRecord,
    wanted: Epoch,
    ambient: Ambient,
    known: KnownReferences | None = None,
) -> RetentionPlan | RetentionRefused:
    """Like `retain_from`, but keep data files to which no epoch refers.

    For a claim under which no epoch was published: a driver that it has fenced may be about to
    publish one, and may have swapped in a merge that no epoch refers to yet.
    """
    stored = job.read_boundary()
    facts = observe_objects(job, _later_boundary(wanted, stored), known)
    return _carry_out(job, claim, ambient, replace(facts, spared=_unreferenced_data(job, facts)), stored)


def preview_retention(job: JobObjects, wanted: Epoch) -> RetentionPlan | RetentionRefused:
    """What `retain_sparing_merges` would delete now. Nothing is changed, and nothing is claimed."""
    facts = observe_objects(job, _later_boundary(wanted, job.read_boundary()))
    return plan_retention(replace(facts, spared=_unreferenced_data(job, facts)))


def _carry_out(
    job: JobObjects,
    claim: GenerationRecord,
    ambient: Ambient,
    before: RetentionFacts,
    stored: Versioned[BoundaryRecord] | None,
) -> RetentionPlan | RetentionRefused:
    # Before the boundary moves: if what is kept cannot be read, older epochs must stay openable.
    if isinstance(refused := plan_retention(before), RetentionRefused):
        return refused
    if stored is None or stored.record.oldest < before.boundary:
        _advance_boundary(job, claim, before.boundary, stored, ambient)
    facts = _refresh_tags(job, before)
    plan = plan_retention(facts)
    if isinstance(plan, RetentionPlan) and plan.delete_first:
        check_fence(job, claim)
        job.store.delete_many(job.store_path(path) for path in plan.delete_first)
        facts = _refresh_tags(job, _without_records(before, plan))
        plan = _with_first(plan_retention(facts), plan.delete_first)
    if isinstance(plan, RetentionPlan):
        check_fence(job, claim)
        job.store.delete_many(job.store_path(path) for path in plan.delete_then)
        release_parent(job, claim, needed_objects(facts))
    return plan


def _without_records(facts: RetentionFacts, done: RetentionPlan) -> RetentionFacts:
    """The facts once the records that a plan deletes first are gone."""
    gone = {parse_object_name(path).epoch for path in done.delete_first}
    return replace(facts, published=[epoch for epoch in facts.published if epoch not in gone])


def _with_first(
    plan: RetentionPlan | RetentionRefused, first: tuple[str, ...]
) -> RetentionPlan | RetentionRefused:
    return replace(plan, delete_first=first) if isinstance(plan, RetentionPlan) else plan


def _later_boundary(wanted: Epoch, stored: Versioned[BoundaryRecord] | None) -> Epoch:
    return wanted if stored is None else max(wanted, stored.record.oldest)


def observe_objects(job: JobObjects, boundary: Epoch, known: KnownReferences | None = None) -> RetentionFacts:
    """Read every fact that the plan needs. Unreadable metadata is a fact, not an error."""
    return observe_listed(job, boundary, job.list_epochs(), known or KnownReferences())


def observe_listed(
    job: JobObjects, boundary: Epoch, published: Sequence[Epoch], known: KnownReferences
) -> RetentionFacts:
    """The facts, with every object of the job."""
    tagged, unread_tags, forked = _read_tags(job, published)
    objects = _list_objects(job)
    references = _known_references(job, boundary, published, tagged, known)
    return RetentionFacts(boundary, published, tagged, references, objects, unread_tags, forked=forked)


def observe_known(
    job: JobObjects, boundary: Epoch, published: Sequence[Epoch], known: KnownReferences
) -> RetentionFacts:
    """The facts, with just the objects of the epochs that go. Lists everything if one is not known."""
    tagged, unread_tags, forked = _read_tags(job, published)
    going = [epoch for epoch in published if epoch < boundary and epoch not in tagged]
    objects = known.forget_before(boundary) if known.knows(going) else _list_objects(job)
    references = _known_references(job, boundary, published, tagged, known)
    return RetentionFacts(boundary, published, tagged, references, objects, unread_tags, forked=forked)


def _list_objects(job: JobObjects) -> list[str]:
    prefix = f"{job.job_id}/"
    return [info.path.removeprefix(prefix) for info in job.store.list(prefix)]


def _known_references(
    job: JobObjects,
    boundary: Epoch,
    published: Sequence[Epoch],
    tagged: Collection[Epoch],
    known: KnownReferences,
) -> Mapping[Epoch, Collection[str] | Damaged]:
    retained = [epoch for epoch in published if epoch >= boundary or epoch in tagged]
    return known.of(retained, boundary, lambda epoch: read_references(job, epoch))


def read_references(job: JobObjects, epoch: Epoch) -> frozenset[str] | Damaged:
    """Every object that restoring an epoch needs, or the damage that hides them."""
    try:
        record = job.read_epoch(epoch)
        if record is None:
            return Damaged(job.paths.epoch_record(epoch), "the record disappeared while it was read")
        return _references_in(job, record)
    except (CorruptionError, IncompatibleStateError) as damage:
        return Damaged(damage.object_name or f"epoch {epoch}", str(damage))


def _unreferenced_data(job: JobObjects, facts: RetentionFacts) -> frozenset[str]:
    """Data files to which no published epoch refers, as far as its metadata can be read."""
    read = dict(facts.references)
    read |= {epoch: read_references(job, epoch) for epoch in facts.published if epoch not in read}
    referenced = {path for paths in read.values() if not isinstance(paths, Damaged) for path in paths}
    data = (path for path in facts.objects if parse_object_name(path).kind is ObjectKind.DATA)
    return frozenset(path for path in data if path not in referenced)


def _read_tags(
    job: JobObjects, published: Collection[Epoch]
) -> tuple[frozenset[Epoch], tuple[Damaged, ...], frozenset[str]]:
    """The epochs that tags keep, the damage that hides some of them, and what forks need besides.

    A fork needs no record: if retention deletes that of its epoch at the moment the fork is made, the tag
    of the fork still names the manifest.
    """
    try:
        tags = job.read_tags()
        lone = [tag for tag in tags if tag.fork and tag.epoch not in published]
        return frozenset(tag.epoch for tag in tags), (), _needed_by_forks(job, lone)
    except (CorruptionError, IncompatibleStateError) as damage:
        return frozenset(), (Damaged(damage.object_name or TAGS, str(damage)),), frozenset()


def _needed_by_forks(job: JobObjects, tags: Sequence[TagRecord]) -> frozenset[str]:
    found: set[str] = set()
    for tag in tags:
        data = job.read_verified(tag.manifest)
        manifest = decode_manifest(data, job.url_of(tag.manifest.path), job.job_id)
        found |= {tag.manifest.path} | _objects_below(job, manifest)
    return frozenset(found)


def _references_in(job: JobObjects, record: EpochRecord) -> frozenset[str]:
    return references_of(job, record, job.read_manifest(record))


def references_of(job: JobObjects, record: EpochRecord, manifest: Manifest) -> frozenset[str]:
    """Every object that restoring an epoch needs. Reads the metadata that `job` does not know."""
    paths = (
        job.paths.epoch_record(record.epoch),
        record.manifest.path,
        job.paths.commit_marker(record.epoch),
    )
    return _objects_below(job, manifest).union(paths)


def _objects_below(job: JobObjects, manifest: Manifest) -> frozenset[str]:
    """What a manifest refers to, and the metadata that it names."""
    entries = [subtask for operator in manifest.operators for subtask in operator.subtasks]
    paths = {entry.metadata.path for entry in entries}
    paths.update(piece.path for log in manifest.engine_logs for piece in log.pieces)
    for entry, metadata in zip(entries, job.read_subtasks(entries), strict=True):
        paths |= files_to_keep(metadata, job.url_of(entry.metadata.path))
    return frozenset(paths)


def _refresh_tags(job: JobObjects, before: RetentionFacts) -> RetentionFacts:
    """The same facts with the tags as they are now that no tag can be added before the boundary.

    Epochs that were published in the meantime need not be read: they refer to what the newest epoch
    referred to, which is kept, to their own files, which are after the boundary, and to merges,
    which the boundary does not pass before they are swapped in, or which are spared.
    """
    tagged, unread_tags, forked = _read_tags(job, before.published)
    facts = replace(before, tagged=tagged, unread_tags=unread_tags, forked=forked)
    new = {epoch: read_references(job, epoch) for epoch in facts.retained if epoch not in before.references}
    return replace(facts, references={**before.references, **new})


def _advance_boundary(
    job: JobObjects,
    claim: GenerationRecord,
    boundary: Epoch,
    stored: Versioned[BoundaryRecord] | None,
    ambient: Ambient,
) -> None:
    check_fence(job, claim)
    record = BoundaryRecord(job.job_id, boundary, claim.generation, ambient.new_id())
    if not _swap_boundary(job, record, stored):
        raise ConflictError(
            "another driver advanced the retention boundary",
            object_name=job.url_of(BOUNDARY),
            action="nothing was deleted; retention will run again",
        )


def _swap_boundary(job: JobObjects, record: BoundaryRecord, seen: Versioned[BoundaryRecord] | None) -> bool:
    try:
        return job.swap(BOUNDARY, record, seen)
    except OutcomeUnknownError:
        found = job.read_boundary()
        return found is not None and found.record == record
