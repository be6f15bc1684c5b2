"""`Monitor`: checks every change of the stores when it happens.

It keeps its own record of what is published, referenced, tagged and visible, read from the bytes themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from lakestate.errors import LakestateError
from lakestate.protocol.metadata import CompletionStatus, Manifest
from lakestate.protocol.paths import ObjectKind, ObjectName, parse_object_name
from lakestate.protocol.records import BoundaryRecord, GenerationRecord, TagRecord
from lakestate.protocol.values import Epoch
from lakestate.testing.faults import Operation
from lakestate.testing.simulation.checks.commits import CommitChecks
from lakestate.testing.simulation.checks.forks import ForkChecks
from lakestate.testing.simulation.checks.published import PublishedEpoch, seen_after
from lakestate.testing.simulation.checks.read_back import (
    counter_difference,
    output_rows,
    restore_state,
    row_difference,
)
from lakestate.testing.simulation.checks.snapshots import check_snapshots
from lakestate.testing.simulation.checks.written_again import WrittenAgain, goes_back
from lakestate.testing.simulation.cluster.process import Process
from lakestate.testing.simulation.cluster.world import JOB_ID, World
from lakestate.testing.simulation.promises import Promise
from lakestate.testing.simulation.random_streams import random_stream
from lakestate.testing.simulation.seen import Seen
from lakestate.testing.simulation.stores.objects import SimulatedObjects
from lakestate.testing.simulation.stores.store import SimulatedStore

_PREFIX = f"{JOB_ID}/"
_IMMUTABLE = frozenset(
    (ObjectKind.MANIFEST, ObjectKind.SUBTASK_METADATA, ObjectKind.DATA, ObjectKind.EPOCH_RECORD)
)

OUTPUT = "OUTPUT"
AWAITABLE_WRITES = ("MANIFEST", "EPOCH_RECORD", "COMMITTED", "BOUNDARY", "SUBTASK_METADATA", OUTPUT)
"""Writes after which a second driver is most likely to reveal a bug."""


class Monitor:
    """The observer of both stores."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._objects = SimulatedObjects(world.state, JOB_ID)
        self._checks = random_stream(world.seed, "checks")
        self.published: dict[Epoch, PublishedEpoch] = {}
        self._seen: dict[Epoch, Seen] = {}
        """Of all epochs, also of those that retention has collected."""
        self.fence = 0
        self.oldest = 0
        self._tags: dict[str, Epoch] = {}
        """Tags that keep their epoch: created while it could still be opened."""
        self._kept_tags: dict[str, Epoch] = {}
        """Acknowledged tags, until their owner releases them."""
        self._fence_at_manifest: dict[str, int] = {}
        self._files_of: dict[str, tuple[str, ...]] = {}
        """The files that a metadata object names. Read once, because objects are immutable."""
        self._visible: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in world.outputs}
        self._written_again = {name: WrittenAgain(name) for name in world.outputs}
        self._awaited_write: tuple[str, int] | None = None
        self.commits = CommitChecks(world, self._objects)
        self.forks = ForkChecks(world)
        for store in (world.state, *world.outputs.values()):
            store.observer = self
        world.monitor = self

    @property
    def newest(self) -> PublishedEpoch | None:
        """The newest published epoch."""
        return self.published[max(self.published)] if self.published else None

    @property
    def seen(self) -> Seen:
        """What the operator has seen by the newest published epoch."""
        return Seen() if self.newest is None else self.newest.seen

    def seen_by_epoch(self, epoch: Epoch) -> Seen | None:
        """What the operator has seen by an epoch, also a collected one; None if it was never published."""
        return self._seen.get(epoch)

    @property
    def is_drained(self) -> bool:
        """True if all rows are included and the job was stopped in an orderly way."""
        newest = self.newest
        rows = len(self._world.job.rows)
        return (
            newest is not None and newest.offset == rows and newest.manifest.status is CompletionStatus.FINAL
        )

    def visible(self, sink_id: str) -> list[dict[str, Any]]:
        """All rows of a sink's output that readers see."""
        return [row for rows in self._visible[sink_id].values() for row in rows]

    def expected_output(self, sink_id: str, seen: Seen) -> Counter[Any] | None:
        """The rows of output of some epochs, and those that were written again."""
        job = self._world.job
        expected = job.output(seen)
        if expected is None:
            return None
        return Counter(job.comparable(expected)) + self._written_again[sink_id].rows

    @property
    def has_gone_back(self) -> bool:
        """Whether rows were written again, so that the output is of several attempts."""
        return any(each.rows for each in self._written_again.values())

    def output_difference(self, sink_id: str) -> str | None:
        """How a sink's output differs from that of all epochs, or None."""
        job = self._world.job
        expected = self.expected_output(sink_id, self.seen)
        if expected is None:
            return None
        return counter_difference(Counter(job.comparable(self.visible(sink_id))), expected)

    def check_paused(self, epoch: Epoch) -> None:
        """Check, after a driver has finished its files in an epoch, that nothing up to it is hidden."""
        job = self._world.job
        for sink_id in self._visible:
            expected = self.expected_output(sink_id, self._seen[epoch])
            if expected is None:
                return
            hidden = expected - Counter(job.comparable(self.visible(sink_id)))
            if hidden:
                self._world.fail(Promise.PAUSE_SHOWS_ALL, f"{sink_id}: {dict(next(iter(hidden)))}")

    def await_write(self, kind: str, nth: int) -> None:
        """Start to wait for the nth write of a kind of object, one of `AWAITABLE_WRITES`."""
        self._awaited_write = (kind, nth)

    @property
    def has_awaited_write(self) -> bool:
        """Whether the awaited write has happened."""
        return self._awaited_write is None

    def retained_epochs(self) -> list[Epoch]:
        """The epochs that must be restorable now."""
        kept = {*self._tags.values(), *self._kept_tags.values()}
        return sorted(epoch for epoch in self.published if epoch >= self.oldest or epoch in kept)

    def on_tag_acknowledged(self, name: str, epoch: Epoch) -> None:
        """A tag of an epoch was acknowledged to its owner."""
        self._kept_tags[name] = epoch
        if epoch not in self.published:
            self._world.fail(Promise.TAG_KEEPS_EPOCH, f"{name}: epoch {epoch}")

    def on_tag_released(self, name: str) -> None:
        """The owner of a tag is about to delete it."""
        del self._kept_tags[name]

    def is_overtaken(self, process: Process) -> bool:
        """Whether another driver has taken over the job."""
        return process.generation == 0 or self.fence > process.generation

    def after_call(self, store: SimulatedStore, operation: Operation) -> None:
        """An actor got an answer: remember the generation of the fence that it could know."""
        if store is self._world.state and operation is not Operation.DELETE:
            self._world.scheduler.current.fence_known = self.fence

    def on_write(self, store: SimulatedStore, path: str, data: bytes, before: bytes | None) -> None:
        """Check a write. The writer never sees an error of the monitor."""
        try:
            self._check_write(store, path, data, before)
        except LakestateError as error:
            self._world.fail(Promise.WRITTEN_READABLE, f"{path}: {error}")

    def _check_write(self, store: SimulatedStore, path: str, data: bytes, before: bytes | None) -> None:
        if store is not self._world.state:
            self._on_output(store.name, path, data, before)
            self.count_awaited_write(OUTPUT)
            return
        self.forks.on_write(path, data)
        name = parse_object_name(path.removeprefix(_PREFIX))
        self.count_awaited_write(name.kind.name)
        if name.kind in _IMMUTABLE and before is not None and before != data:
            self._world.fail(Promise.NAMES_IMMUTABLE, path)
        match name.kind:
            case ObjectKind.FENCE:
                self._on_claim(data, path)
            case ObjectKind.BOUNDARY:
                self._on_boundary(data, path)
            case ObjectKind.MANIFEST:
                self._fence_at_manifest.setdefault(name.path, self.fence)
            case ObjectKind.EPOCH_RECORD if before is None:
                self._on_publish(name, data)
            case ObjectKind.COMMITTED:
                self._on_commit_marker(name)
            case ObjectKind.TAG:
                tag = TagRecord.decode(data, path, JOB_ID)
                if tag.epoch >= self.oldest:
                    self._tags[name.path] = tag.epoch

    def on_delete(self, store: SimulatedStore, path: str) -> None:
        """Check a deletion."""
        if path == self._world.foreign:
            self._world.fail(Promise.FOREIGN_UNTOUCHED, path)
        if store is not self._world.state:
            if path in self._visible[store.name]:
                self._world.fail(Promise.OUTPUT_NOT_DELETED, path)
            return
        self.forks.on_delete(path)
        name = parse_object_name(path.removeprefix(_PREFIX))
        if name.kind is ObjectKind.TAG:
            self._tags.pop(name.path, None)
            return
        self.check_fence("delete", path)
        for epoch in self.retained_epochs():
            if name.path in self.published[epoch].needs:
                self._world.fail(Promise.NEEDED_NOT_DELETED, f"{path} of {epoch}")
        if name.kind is ObjectKind.EPOCH_RECORD and name.epoch in self.published:
            del self.published[name.epoch]
            self._world.counts["epochs collected"] += 1

    def count_awaited_write(self, kind: str) -> None:
        """A write of a kind has happened."""
        if self._awaited_write is not None and self._awaited_write[0] == kind:
            nth = self._awaited_write[1] - 1
            self._awaited_write = (kind, nth) if nth else None
            if not nth:
                self._world.scheduler.interrupt()

    def check_restorable(self, epoch: Epoch) -> dict[str, list[dict[str, Any]]]:
        """Restore an epoch at a random parallelism, and compare every row with the oracle."""
        world, job = self._world, self._world.job
        promised = self.published[epoch]
        parallelism = self._checks.choice((1, 1, 2, 3, 4))
        try:
            found = restore_state(world, epoch, parallelism)
        except LakestateError as error:
            world.fail(Promise.EPOCH_RESTORABLE, f"epoch {epoch} at {parallelism}: {error}")
        expected = job.state(promised.seen)
        for table, rows in (expected or {}).items():
            difference = row_difference(job, found[table], rows)
            if difference:
                where = f"table {table} of epoch {epoch} at parallelism {parallelism}"
                world.fail(Promise.STATE_EXACT, f"{where}: {difference}")
        world.counts["epochs restored"] += 1
        return found

    def _on_claim(self, data: bytes, path: str) -> None:
        generation = int(GenerationRecord.decode(data, path, JOB_ID).generation)
        if generation <= self.fence:
            self._world.fail(Promise.GENERATIONS_RISE, f"{generation} after {self.fence}")
        self.fence = generation
        self.commits.on_claim(generation)
        if self._world.acting is not None:
            self._world.acting.generation = generation

    def _on_boundary(self, data: bytes, path: str) -> None:
        oldest = BoundaryRecord.decode(data, path, JOB_ID).oldest
        if oldest < self.oldest:
            self._world.fail(Promise.BOUNDARY_ADVANCES, f"{oldest} after {self.oldest}")
        if oldest not in self.published:
            self._world.fail(Promise.BOUNDARY_PUBLISHED, oldest)
        kept = sum(epoch >= oldest for epoch in self.published)
        if kept < self._world.scenario.keep_epochs and any(epoch < oldest for epoch in self.published):
            self._world.fail(Promise.POLICY_KEPT, f"{kept} from {oldest} on")
        self.oldest = int(oldest)
        self.check_fence("advance the boundary", path)

    def check_fence(self, act: str, path: str) -> None:
        """A driver may rely on the fence as of its last call, and on nothing older."""
        acting = self._world.acting
        if acting is None or acting.generation == 0:
            return
        known = self._world.scheduler.current.fence_known
        if known > acting.generation:
            found = f"{acting.name} could know of generation {known}: {act} {path}"
            self._world.fail(Promise.FENCED_CHANGES_NOTHING, found)

    def _on_publish(self, name: ObjectName, data: bytes) -> None:
        epoch = name.epoch
        if epoch is None or epoch < self.oldest:
            # From a driver that stalled for hours. The record is void, and the driver must not commit.
            return
        record = self._objects.decode_epoch_record(epoch, data)
        if self._fence_at_manifest.get(record.manifest.path, 0) > record.generation:
            self._world.fail(Promise.FENCED_PUBLISHES_NOTHING, f"epoch {epoch} by {record.generation}")
        self.check_fence("publish", name.path)
        if not self._world.state.contains(_PREFIX + record.manifest.path):
            self._world.fail(Promise.REFERENCES_EXIST, f"{record.manifest.path} of epoch {epoch}")
        manifest = self._objects.read_manifest(record)
        needs = frozenset((name.path, record.manifest.path, *self._needs(manifest)))
        found = PublishedEpoch(manifest, needs, self._seen_by(manifest))
        self._check_sequence(epoch, found)
        self.published[epoch] = found
        self._seen[epoch] = found.seen
        self._world.counts["epochs published"] += 1
        self.commits.on_publish(manifest)
        self._world.table_checks.on_publish(manifest)
        self.check_restorable(epoch)

    def _seen_by(self, manifest: Manifest) -> Seen:
        if goes_back(manifest):
            assert manifest.went_back is not None
            return self._seen[manifest.went_back.to]
        before = self._seen.get(Epoch(manifest.epoch - 1), Seen()) if manifest.epoch > 1 else Seen()
        return seen_after(before, manifest, self._world.job.rows)

    def _needs(self, manifest: Manifest) -> Iterator[str]:
        """Everything that a manifest refers to. A missing object is a violation."""
        for entry in (subtask for operator in manifest.operators for subtask in operator.subtasks):
            metadata = entry.metadata.path
            self._check_there(metadata, manifest.epoch)
            yield metadata
            if metadata not in self._files_of:
                tables = self._objects.read_subtasks([entry])[0].tables
                self._files_of[metadata] = tuple(file.path for table in tables for file in table.files)
            for path in self._files_of[metadata]:
                self._check_there(path, manifest.epoch)
                yield path

    def _check_there(self, path: str, epoch: Epoch) -> None:
        if not self._world.state.contains(_PREFIX + path):
            self._world.fail(Promise.REFERENCES_EXIST, f"{path} of epoch {epoch}")

    def _check_sequence(self, epoch: Epoch, found: PublishedEpoch) -> None:
        before = self.published.get(Epoch(epoch - 1)) if epoch > 1 else None
        if epoch > 1 and before is None:
            self._world.fail(Promise.EPOCHS_IN_SEQUENCE, f"epoch {epoch} without {epoch - 1}")
        for sink_id, again in self._written_again.items():
            again.on_publish(epoch, self._visible_rows(sink_id))
        if goes_back(found.manifest):
            self._on_going_back(found)
            return
        watermark_us = None if before is None else self._world.job.source_watermark_us(before.offset)
        if found.manifest.watermark_us != watermark_us and not found.keeps_watermark(before):
            stated = f"{found.manifest.watermark_us} in epoch {epoch} instead of {watermark_us}"
            self._world.fail(Promise.WATERMARK_FROM_EARLIER_ROWS, stated)
        if before is None:
            return
        if found.offset < before.offset:
            self._world.fail(Promise.OFFSETS_ADVANCE, f"{found.offset} after {before.offset}")
        if found.parallelism != before.parallelism:
            self._world.counts["rescaled"] += 1

    def _on_going_back(self, found: PublishedEpoch) -> None:
        """Check that an epoch stands for an earlier one, and remember what is visible of later rows."""
        assert found.manifest.went_back is not None
        earlier = self.published.get(found.manifest.went_back.to)
        if earlier is None or (found.offset, found.manifest.watermark_us) != (
            earlier.offset,
            earlier.manifest.watermark_us,
        ):
            self._world.fail(Promise.GOES_BACK_EXACTLY, f"epoch {found.manifest.epoch}")
            return
        job = self._world.job
        own = Counter(job.comparable(job.output(earlier.seen) or ()))
        for sink_id, again in self._written_again.items():
            files = self._visible[sink_id]
            again.on_going_back(
                found.manifest,
                earlier.manifest,
                own,
                self._visible_rows(sink_id),
                lambda path, files=files: Counter(job.comparable(files.get(path, []))),  # type: ignore[misc]
            )
        self._world.counts["went back"] += 1

    def _visible_rows(self, sink_id: str) -> Counter[Any]:
        return Counter(self._world.job.comparable(self.visible(sink_id)))

    def _on_commit_marker(self, name: ObjectName) -> None:
        assert name.epoch is not None
        if name.epoch >= self.oldest and name.epoch not in self.published:
            self._world.fail(Promise.COMMIT_AFTER_PUBLISHING, name.path)
        self.commits.on_marker(name.epoch)
        self._world.table_checks.on_marker(name.epoch)
        check_snapshots(self._world, name.epoch)

    def _on_output(self, sink_id: str, path: str, data: bytes, before: bytes | None) -> None:
        """Check new output: every row is expected, and none is duplicated."""
        if path.startswith("_"):
            return
        if before is not None:
            if before != data:
                self._world.fail(Promise.OUTPUT_IMMUTABLE, path)
            return
        self.check_fence("commit", path)
        self._visible[sink_id][path] = output_rows(self._world, data)
        newest = self.newest
        offset = 0 if newest is None else newest.offset
        job = self._world.job
        expected = self.expected_output(sink_id, self.seen)
        if expected is not None:
            found = Counter(job.comparable(self.visible(sink_id)))
            surplus = found - expected
            if surplus:
                row, times = next(iter(surplus.items()))
                self._world.fail(
                    Promise.NO_SURPLUS_OUTPUT,
                    f"{dict(row)} {found[row]} times in {offset} rows ({times} too many), last in {path}",
                )
