"""A driver of a very small job, for tests of the coordinator: real objects, no Spark.

Each epoch writes one data file and one metadata object, carries the two files before it forward,
and has one sink whose output is an object, created once. Output that is written twice with
different content is noticed.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import xxhash

from lakestate.codec import encode_subtask
from lakestate.coordinator.claim import claim_generation
from lakestate.coordinator.commit import commit_epoch
from lakestate.coordinator.publish import publish_epoch
from lakestate.coordinator.recover import RecoveredEpoch, recover_job
from lakestate.errors import NotFoundError
from lakestate.job.objects import JobObjects
from lakestate.job.published_epochs import open_epoch
from lakestate.protocol.key_ranges import ALL_KEYS
from lakestate.protocol.metadata import (
    Manifest,
    OperatorEntry,
    SinkPreCommit,
    StateSummary,
    SubtaskEntry,
    SubtaskMetadata,
    TableConfig,
    TableFiles,
)
from lakestate.protocol.publication import Collected, CommitPermit, Fenced, Published, Superseded
from lakestate.protocol.records import GenerationRecord
from lakestate.protocol.table_types import KEYED
from lakestate.protocol.values import Epoch, FileRef, ObjectRef
from lakestate.storage import AlreadyExists, ObjectStore, open_store
from lakestate.testing.stepping import SteppingAmbient

OUTPUT = "output"
FILES_CARRIED = 2


def fresh_memory() -> ObjectStore:
    """An empty store in memory. Stores of one name share what they hold."""
    return open_store(f"memory://{uuid.uuid4().hex}")


class NotPublishedError(Exception):
    """The driver was told that its epoch does not stand, and stops."""


@dataclass
class SmallJob:
    """One driver. `name` tells its objects from those of other drivers."""

    store: ObjectStore
    name: str
    job: JobObjects = field(init=False)
    ambient: SteppingAmbient = field(init=False)
    claim: GenerationRecord = field(init=False)
    parent: Manifest | None = field(init=False, default=None)
    configs: tuple[TableConfig, ...] = (TableConfig("users", KEYED),)

    def __post_init__(self) -> None:
        self.job = JobObjects(self.store, "job")
        self.ambient = SteppingAmbient(self.name)

    def start(self) -> RecoveredEpoch | None:
        """Claim, recover, and finish an interrupted commit."""
        self.claim = claim_generation(self.job, self.ambient)
        found = recover_job(self.job, self.claim)
        if found is None:
            return None
        if found.permit is not None:
            self.commit(found.permit, found.manifest)
        self.parent = found.manifest
        return found

    def write(self, epoch: Epoch) -> Manifest:
        """The objects of one epoch, up to but not including its manifest."""
        file = self._data_file(epoch)
        metadata = SubtaskMetadata(
            job_id="job",
            operator_id="op",
            subtask_index=0,
            parallelism=1,
            epoch=epoch,
            generation=self.claim.generation,
            attempt=self.ambient.new_id(),
            key_range=ALL_KEYS,
            started_ms=0,
            finished_ms=0,
            configs=self.configs,
            tables=(TableFiles("users", KEYED, (file, *self._carried())),),
        )
        ref = self.job.create_new(
            lambda attempt: self.job.paths.subtask_metadata(epoch, "op", 0, attempt),
            encode_subtask(metadata),
            metadata.attempt,
        )
        entry = SubtaskEntry(0, ALL_KEYS, ref, StateSummary(1, 1, file.size_bytes, file.size_bytes))
        return Manifest(
            job_id="job",
            epoch=epoch,
            generation=self.claim.generation,
            parent=None if self.parent is None else self.parent.epoch,
            started_ms=self.ambient.now_ms(),
            finished_ms=self.ambient.now_ms(),
            min_epoch=Epoch(1),
            operators=(OperatorEntry("op", 1, (entry,)),),
            sinks=(SinkPreCommit("out", file.path.encode()),),
            state_id=self.claim.state_id,
        )

    def publish(self, manifest: Manifest) -> Published | Superseded | Fenced | Collected:
        return publish_epoch(self.job, self.claim, manifest, self.ambient)

    def commit(self, permit: CommitPermit, manifest: Manifest) -> None:
        commit_epoch(self.job, self.claim, permit, manifest, {"out": self._write_output})

    def run_epoch(self) -> Published | Superseded | Fenced | Collected:
        """Write, publish and commit the next epoch."""
        manifest = self.write(Epoch(1) if self.parent is None else self.parent.epoch.next())
        outcome = self.publish(manifest)
        if isinstance(outcome, Published):
            self.commit(outcome.permit, manifest)
            self.parent = manifest
        return outcome

    def run_to(self, last: int) -> None:
        """Run epochs until `last` is published."""
        while self.parent is None or self.parent.epoch < last:
            outcome = self.run_epoch()
            if not isinstance(outcome, Published):
                raise NotPublishedError(outcome)

    def _data_file(self, epoch: Epoch) -> FileRef:
        data = f"rows of {epoch} by {self.name}".encode()
        path = self.job.paths.data(epoch, "op", "users", 0, self.ambient.new_id())
        self.job.put_verified(ref := ObjectRef(path, len(data), xxhash.xxh3_64_intdigest(data)), data)
        return FileRef(path, ref.size_bytes, ref.checksum, 1, epoch, self.claim.generation, 0, 1, 0)

    def _carried(self) -> tuple[FileRef, ...]:
        if self.parent is None:
            return ()
        return files_of(self.job, self.parent)[:FILES_CARRIED]

    def _write_output(self, permit: CommitPermit, sink: SinkPreCommit) -> None:
        outcome = self.store.create(f"{OUTPUT}/{permit.epoch}", sink.data)
        if isinstance(outcome, AlreadyExists):
            assert outcome.existing.data == sink.data, f"output of epoch {permit.epoch} was written twice"


def started_job(store: ObjectStore, name: str = "a") -> SmallJob:
    """A driver that has claimed its generation and recovered."""
    driver = SmallJob(store, name)
    driver.start()
    return driver


def files_of(job: JobObjects, manifest: Manifest) -> tuple[FileRef, ...]:
    """The data files that a manifest leads to, newest first."""
    entries = [subtask for operator in manifest.operators for subtask in operator.subtasks]
    found = job.read_subtasks(entries)
    return tuple(file for metadata in found for table in metadata.tables for file in table.files)


def restored(job: JobObjects, epoch: Epoch) -> list[bytes]:
    """All state of an epoch, every object verified. Raises if anything is missing or damaged."""
    _, manifest = open_epoch(job, epoch)
    return job.read_many_verified([file.object_ref for file in files_of(job, manifest)])


def outputs(store: ObjectStore) -> dict[int, str]:
    """The committed output: the data file that each epoch's output came from."""
    return {
        int(info.path.removeprefix(f"{OUTPUT}/")): store.get(info.path).data.decode()
        for info in store.list(f"{OUTPUT}/")
    }


def check_promises(store: ObjectStore) -> None:
    """Output exactly once and in step with the state; what must be restorable is."""
    job = JobObjects(store, "job")
    epochs = job.list_epochs()
    boundary = job.read_boundary()
    oldest = Epoch(1) if boundary is None else boundary.record.oldest
    tagged = {tag.epoch for tag in job.read_tags()}
    written = outputs(store)
    assert sorted(written) == list(range(1, max(epochs) + 1)), "an epoch's output is missing"
    for epoch in epochs:
        if epoch >= oldest or epoch in tagged:
            restored(job, epoch)
            assert open_epoch(job, epoch)[1].sinks[0].data.decode() == written[epoch]
    for epoch in tagged:
        try:
            restored(job, epoch)
        except NotFoundError as missing:
            raise AssertionError(f"tagged epoch {epoch} is gone") from missing
