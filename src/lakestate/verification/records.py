"""The JSON records of a job: each by itself, and all compared with each other.

A record that was replaced by an older version is valid by itself, and one that was deleted leaves
nothing: only the other records show it. The fence is read last, because it must know of everything
that was published before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from lakestate.protocol.metadata import Manifest
from lakestate.protocol.paths import BOUNDARY, FENCE, ObjectKind, parse_object_name
from lakestate.protocol.records import BoundaryRecord, CommittedRecord, EpochRecord, TagRecord
from lakestate.protocol.values import Epoch, Generation
from lakestate.verification.audit import Audit, Flaw
from lakestate.verification.report import Problem

NO_START = "no driver can start"
NO_RETENTION = "retention deletes nothing"
COMMITTED_AGAIN = "the commit is repeated, which is harmless"


@dataclass
class Records:
    """What the records of a job say."""

    boundary: BoundaryRecord | None = None
    published: frozenset[Epoch] = frozenset()
    """The epochs that have a record, readable or not."""
    epochs: dict[Epoch, EpochRecord] = field(default_factory=dict)
    tags: dict[str, TagRecord] = field(default_factory=dict)
    """The readable ones, by path."""
    committed: set[Epoch] = field(default_factory=set)
    is_everything_retained: bool = False
    """True if the boundary or a tag cannot be read: any epoch may have to be kept."""

    @property
    def oldest(self) -> Epoch:
        """The oldest epoch that is kept without a tag."""
        return Epoch(1) if self.boundary is None else self.boundary.oldest

    @property
    def newest(self) -> Epoch | None:
        """The newest published epoch."""
        return max(self.published, default=None)

    def is_retained(self, epoch: Epoch) -> bool:
        """Whether retention must keep an epoch."""
        if self.is_everything_retained or epoch >= self.oldest:
            return True
        return any(tag.epoch == epoch for tag in self.tags.values())

    @property
    def retained(self) -> tuple[Epoch, ...]:
        """The epochs that have a record and are kept."""
        return tuple(epoch for epoch in sorted(self.published) if self.is_retained(epoch))

    def tags_of(self, epoch: Epoch) -> tuple[str, ...]:
        """The names of an epoch's tags."""
        return tuple(sorted(tag.name for tag in self.tags.values() if tag.epoch == epoch))


def read_records(audit: Audit, listed: Mapping[str, int]) -> Records:
    """Read the boundary, the epoch records and the tags."""
    objects, records = audit.objects, Records()
    if BOUNDARY in listed:
        audit.count_read(BOUNDARY, listed[BOUNDARY])
    found = audit.try_read(BOUNDARY, objects.read_boundary, NO_START)
    records.boundary = None if found is None else found.record
    records.is_everything_retained = audit.is_flawed(BOUNDARY)
    records.published = frozenset(objects.list_epochs())
    _read_tags(audit, listed, records)
    for epoch in records.retained:
        path = objects.paths.epoch_record(epoch)
        audit.count_read(path, listed.get(path, 0))
        audit.add_epoch_dependency(path, epoch)
        record = audit.try_read(path, partial(objects.read_epoch, epoch))
        if record is not None:
            records.epochs[epoch] = record
            _read_marker(audit, listed, record, records)
    return records


def _read_tags(audit: Audit, listed: Mapping[str, int], records: Records) -> None:
    for path in (path for path in listed if parse_object_name(path).kind is ObjectKind.TAG):
        audit.count_read(path, listed[path])
        tag = audit.try_read(path, partial(audit.objects.read_tag, path), NO_RETENTION)
        if tag is not None:
            records.tags[path] = tag
        records.is_everything_retained |= audit.is_flawed(path)


def _read_marker(audit: Audit, listed: Mapping[str, int], record: EpochRecord, records: Records) -> None:
    objects, epoch = audit.objects, record.epoch
    path = objects.paths.commit_marker(epoch)
    marker = audit.try_read(path, partial(objects.read_committed, epoch), COMMITTED_AGAIN)
    if marker is not None:
        audit.count_read(path, listed.get(path, 0))
        expected = CommittedRecord(objects.job_id, epoch, record.generation, record.manifest)
        if marker == expected:
            records.committed.add(epoch)
        else:
            detail = f"epoch {marker.epoch}, generation {marker.generation}"
            flaw = Flaw(Problem.MISPLACED, detail, f"the marker of epoch {epoch}", COMMITTED_AGAIN)
            audit.add_flaw(path, flaw)


@dataclass(frozen=True)
class _EpochTraces:
    """What is left of epochs, with or without a record."""

    marked: frozenset[Epoch]
    """Epochs with a commit marker."""
    with_manifest: frozenset[Epoch]
    parents: frozenset[Epoch]
    """Epochs that are the parent of another one."""

    @classmethod
    def collect(cls, manifests: Mapping[Epoch, Manifest], listed: Collection[str]) -> _EpochTraces:
        names = [parse_object_name(path) for path in listed]
        of_kind = {
            kind: frozenset(name.epoch for name in names if name.kind is kind and name.epoch)
            for kind in (ObjectKind.COMMITTED, ObjectKind.MANIFEST)
        }
        parents = frozenset(each.parent for each in manifests.values() if each.parent is not None)
        return cls(of_kind[ObjectKind.COMMITTED], of_kind[ObjectKind.MANIFEST], parents)


def check_records(
    audit: Audit, records: Records, manifests: Mapping[Epoch, Manifest], listed: Collection[str]
) -> None:
    """Record flaws of records that are missing, or older than other records show."""
    left = _EpochTraces.collect(manifests, listed)
    _check_tags(audit, records, left)
    _check_boundary(audit, records, left)
    for epoch, detail in _epochs_without_record(audit, records, left).items():
        path = audit.objects.paths.epoch_record(epoch)
        audit.add_epoch_dependency(path, epoch)
        consequence = NO_START if records.newest is None or epoch > records.newest else ""
        audit.add_flaw(path, Flaw(Problem.MISSING, detail, consequence=consequence))
    _check_order(audit, records)
    _check_fence(audit, records)


def _check_tags(audit: Audit, records: Records, left: _EpochTraces) -> None:
    for path, tag in records.tags.items():
        record = records.epochs.get(tag.epoch)
        if tag.epoch not in records.published and tag.epoch not in left.with_manifest:
            detail = f"epoch {tag.epoch}, which has no record"
            audit.add_flaw(path, Flaw(Problem.CONTRADICTION, detail, "a published epoch"))
        elif record is not None and record.manifest != tag.manifest:
            detail = f"manifest {tag.manifest.path}"
            audit.add_flaw(path, Flaw(Problem.CONTRADICTION, detail, record.manifest.path))


def _check_boundary(audit: Audit, records: Records, left: _EpochTraces) -> None:
    gone = left.parents - records.published - left.with_manifest
    if records.boundary is None:
        if gone and not audit.is_flawed(BOUNDARY):
            detail = f"epoch {max(gone)} was collected"
            audit.add_flaw(BOUNDARY, Flaw(Problem.MISSING, detail, "a boundary after it"))
        return
    oldest = records.boundary.oldest
    if oldest not in records.published and oldest not in left.with_manifest:
        detail = f"epoch {oldest}, of which nothing is left"
        audit.add_flaw(BOUNDARY, Flaw(Problem.OUTDATED, detail, "a published epoch"))


def _epochs_without_record(audit: Audit, records: Records, left: _EpochTraces) -> dict[Epoch, str]:
    """Epochs that must have had a record and have none, with the evidence."""
    oldest = records.oldest
    if audit.is_flawed(BOUNDARY):
        # Epochs before the oldest one that is left may have been collected.
        oldest = min(records.published, default=oldest)
    evidence = {epoch: "the epoch's commit marker" for epoch in left.marked if epoch >= oldest}
    # What a fork needs is kept by its tag alone: the record may go while the fork is made.
    known = {tag.epoch for tag in records.tags.values() if not tag.fork}
    if records.boundary is not None:
        known.add(records.boundary.oldest)
    for epoch in sorted(left.with_manifest):
        if epoch in known or (epoch in left.parents and epoch >= oldest):
            evidence.setdefault(epoch, "the epoch's manifest, and what came after it")
    return {epoch: detail for epoch, detail in evidence.items() if epoch not in records.published}


def _check_order(audit: Audit, records: Records) -> None:
    highest = Generation(1)
    for epoch, record in sorted(records.epochs.items()):
        if record.generation < highest:
            detail = f"generation {record.generation}"
            path = audit.objects.paths.epoch_record(epoch)
            audit.add_flaw(path, Flaw(Problem.CONTRADICTION, detail, f"at least {highest}"))
        highest = max(highest, record.generation)


def _check_fence(audit: Audit, records: Records) -> None:
    found = audit.try_read(FENCE, audit.objects.read_fence, NO_START)
    if audit.is_flawed(FENCE):
        return
    seen = [record.generation for record in records.epochs.values()]
    if records.boundary is not None:
        seen.append(records.boundary.generation)
    highest = max(seen, default=0)
    known = 0 if found is None else found.record.generation
    if found is not None:
        audit.count_read(FENCE, len(found.record.encode()))
    if known < highest:
        problem = Problem.MISSING if found is None else Problem.OUTDATED
        detail = "" if found is None else f"generation {known}"
        # The next driver gets the next generation, which may not be lower than that of a published epoch.
        consequence = NO_START if known + 1 < highest else ""
        audit.add_flaw(FENCE, Flaw(problem, detail, f"at least generation {highest}", consequence))
