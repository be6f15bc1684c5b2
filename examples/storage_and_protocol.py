"""The storage and protocol layers on local files, without Spark.

A very small job counts orders per user. It has two subtasks and no Spark: this file acts as the driver and
as the subtasks, so that you can see every step of an epoch on disk.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from lakestate.codec import encode_subtask
from lakestate.coordinator.claim import claim_generation
from lakestate.coordinator.commit import commit_epoch
from lakestate.coordinator.publish import publish_epoch
from lakestate.coordinator.recover import RecoveredEpoch, recover_job
from lakestate.coordinator.retention.retain import retain_epochs
from lakestate.coordinator.retention.tags import create_tag
from lakestate.errors import LakestateError
from lakestate.job.objects import JobObjects
from lakestate.job.published_epochs import open_epoch
from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.metadata import (
    Column,
    Manifest,
    OperatorEntry,
    SinkPreCommit,
    StateSummary,
    SubtaskEntry,
    SubtaskMetadata,
    TableConfig,
    TableFiles,
)
from lakestate.protocol.publication import CommitPermit, Published
from lakestate.protocol.records import GenerationRecord
from lakestate.protocol.rescale import clip_files, plan_rescale
from lakestate.protocol.retention import RetentionPlan, RetentionPolicy
from lakestate.protocol.table_types import KEYED
from lakestate.protocol.values import Epoch, FileRef, ObjectRef, TaskInfo
from lakestate.storage import ObjectStore, open_store
from lakestate.tables.hashing.routing import routing_keys, subtasks_of
from lakestate.testing import SteppingAmbient

PARALLELISM = 2
FILES_CARRIED = 2
USERS = ["ada", "bert", "cleo", "dora", "emil", "gus", "hana", "ivo"]
CONFIG = TableConfig(
    "orders",
    KEYED,
    key_columns=(Column("user", "string"),),
    value_columns=(Column("n", "bigint"),),
    routing_columns=("user",),
)
out = Console(width=110, highlight=False)


@dataclass
class Driver:
    """The driver and the subtasks of a pipeline, in one object."""

    job: JobObjects
    claim: GenerationRecord
    ambient: SteppingAmbient
    found: RecoveredEpoch | None

    @classmethod
    def start(cls, store: ObjectStore, name: str) -> Driver:
        """Take over the job and find its newest epoch."""
        job, ambient = JobObjects(store, "orders-per-user"), SteppingAmbient(name)
        claim = claim_generation(job, ambient)
        return cls(job, claim, ambient, recover_job(job, claim))

    @property
    def parent(self) -> Manifest | None:
        """The manifest to continue from."""
        return None if self.found is None else self.found.manifest

    def run_epoch(self) -> Manifest:
        """One whole epoch: write, publish, commit."""
        manifest = self.write_epoch()
        self.commit(self.publish(manifest), manifest)
        return manifest

    def write_epoch(self) -> Manifest:
        """Let each subtask write a data file with what changed, and its metadata."""
        epoch = Epoch(1) if self.parent is None else self.parent.epoch.next()
        rows = pa.table({"user": USERS, "n": [epoch * (index + 1) for index in range(len(USERS))]})
        keys = routing_keys([rows["user"]])
        owners = subtasks_of(keys, PARALLELISM)
        entries = []
        for index in range(PARALLELISM):
            mask = owners == index
            entries.append(self._write_subtask(epoch, index, rows.filter(pa.array(mask)), keys[mask]))
        return Manifest(
            job_id=self.job.job_id,
            epoch=epoch,
            generation=self.claim.generation,
            parent=None if self.parent is None else self.parent.epoch,
            started_ms=self.ambient.now_ms(),
            finished_ms=self.ambient.now_ms(),
            min_epoch=Epoch(1),
            operators=(OperatorEntry("totals", PARALLELISM, tuple(entries)),),
            sinks=(SinkPreCommit("report", f"report of epoch {epoch}".encode()),),
            state_id=self.claim.state_id,
        )

    def publish(self, manifest: Manifest) -> CommitPermit:
        """Create the epoch record: from here on the epoch is durable."""
        outcome = publish_epoch(self.job, self.claim, manifest, self.ambient)
        assert isinstance(outcome, Published), outcome
        self.found = RecoveredEpoch(outcome.permit.record, manifest, outcome.permit)
        return outcome.permit

    def commit(self, permit: CommitPermit, manifest: Manifest) -> None:
        """Make the output visible."""
        commit_epoch(self.job, self.claim, permit, manifest, {"report": self._write_report})

    def _write_report(self, permit: CommitPermit, sink: SinkPreCommit) -> None:
        self.job.store.create(f"reports/{permit.epoch}.txt", sink.data)

    def _write_subtask(self, epoch: Epoch, index: int, rows: pa.Table, keys: np.ndarray) -> SubtaskEntry:
        task = TaskInfo(self.job.job_id, "totals", index, PARALLELISM)
        file = self._write_file(epoch, index, rows, keys)
        files = (file, *self._carried_files(index))
        metadata = SubtaskMetadata(
            job_id=self.job.job_id,
            operator_id="totals",
            subtask_index=index,
            parallelism=PARALLELISM,
            epoch=epoch,
            generation=self.claim.generation,
            attempt=self.ambient.new_id(),
            key_range=task.key_range,
            started_ms=self.ambient.now_ms(),
            finished_ms=self.ambient.now_ms(),
            configs=(CONFIG,),
            tables=(TableFiles("orders", KEYED, files),),
        )
        ref = self.job.create_new(
            lambda attempt: self.job.paths.subtask_metadata(epoch, "totals", index, attempt),
            encode_subtask(metadata),
            metadata.attempt,
        )
        summary = StateSummary(
            len(files),
            sum(each.row_count for each in files),
            sum(each.size_bytes for each in files),
            file.size_bytes,
        )
        return SubtaskEntry(index, task.key_range, ref, summary)

    def _write_file(self, epoch: Epoch, index: int, rows: pa.Table, keys: np.ndarray) -> FileRef:
        buffer = io.BytesIO()
        pq.write_table(rows, buffer, compression="zstd")
        data = buffer.getvalue()
        path = self.job.paths.data(epoch, "totals", "orders", index, self.ambient.new_id())
        ref = ObjectRef(path, len(data), xxhash.xxh3_64_intdigest(data))
        self.job.put_verified(ref, data)
        return FileRef(
            path=path,
            size_bytes=ref.size_bytes,
            checksum=ref.checksum,
            row_count=rows.num_rows,
            epoch=epoch,
            generation=self.claim.generation,
            subtask_index=index,
            state_version=CONFIG.state_version,
            schema_fingerprint=CONFIG.schema_fingerprint,
            keys=KeyRange(int(keys.min()), int(keys.max())),
        )

    def _carried_files(self, index: int) -> tuple[FileRef, ...]:
        if self.parent is None:
            return ()
        entry = self.parent.operators[0].subtasks[index]
        table = self.job.read_subtasks([entry])[0].table("orders")
        return () if table is None else table.files[:FILES_CARRIED]


def step(number: int, sentence: str) -> None:
    """Print the heading of a step."""
    out.print(f"\n[bold cyan]{number}. {sentence}[/]")


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a small table."""
    table = Table(*columns, box=None, header_style="dim", pad_edge=True, padding=(0, 2))
    for row in rows:
        table.add_row(*map(str, row))
    out.print(table)


def show_refusal(error: LakestateError) -> None:
    """Print an error as the user would see it."""
    out.print(Padding(Text(f"refused: {error}", style="yellow"), (0, 0, 0, 3)))


def show_disk(root: Path) -> None:
    """Print the files of the job as a tree."""
    tree = Tree(f"[bold]{root}[/]")
    branches = {Path(): tree}
    for file in sorted(path for path in root.rglob("*") if ".lakestate" not in path.parts):
        relative = file.relative_to(root)
        label = relative.name if file.is_dir() else f"{relative.name}  [dim]{file.stat().st_size} bytes[/]"
        branches[relative] = branches[relative.parent].add(label)
    out.print(tree)


def publish_some_epochs(store: ObjectStore) -> Driver:
    """Publish four epochs of a new job."""
    step(1, "A driver claims the job and publishes four epochs; each writes only what changed.")
    driver = Driver.start(store, "first")
    manifests = [driver.run_epoch() for _ in range(4)]
    show_table(
        ["epoch", "generation", "parent", "new bytes", "files referred to", "state bytes"],
        [
            (each.epoch, each.generation, each.parent or "–", each.summary.bytes_written,
             each.summary.file_count, each.summary.size_bytes)
            for each in manifests
        ],
    )  # fmt: skip
    return driver


def replay_an_interrupted_commit(store: ObjectStore, first: Driver) -> Driver:
    """Let the driver fail between publishing and committing."""
    step(2, "It fails after publishing epoch 5 and before committing it; the next driver commits it.")
    first.publish(first.write_epoch())
    second = Driver.start(store, "second")
    assert second.found is not None
    assert second.found.permit is not None
    second.commit(second.found.permit, second.found.manifest)
    epoch = second.found.record.epoch
    out.print(f"   generation {second.claim.generation} found epoch {epoch} without its commit marker and")
    out.print(f"   committed it: reports/{epoch}.txt was written, once")
    return second


def fence_the_old_driver(first: Driver) -> None:
    """Let the first driver, which was only slow, try to publish."""
    step(3, "The first driver was only slow; it is fenced, and cannot publish any more.")
    try:
        first.publish(first.write_epoch())
    except LakestateError as error:
        show_refusal(error)


def keep_two_epochs_and_a_tag(driver: Driver) -> None:
    """Retention, and what it keeps."""
    driver.run_epoch()
    step(4, "Epoch 2 gets a tag, and retention keeps the last two epochs and what they refer to.")
    create_tag(driver.job, "before-the-sale", Epoch(2), driver.ambient)
    policy = RetentionPolicy(keep_epochs=2)
    plan = retain_epochs(driver.job, driver.claim, policy, driver.ambient)
    assert isinstance(plan, RetentionPlan)
    show_table(
        ["boundary", "records to delete first", "objects to delete then", "objects kept"],
        [(f"epoch {plan.boundary}", len(plan.delete_first), len(plan.delete_then), len(plan.kept))],
    )
    needed = [path for path in plan.kept if "/3/" in path and path.endswith(".parquet")]
    out.print(f"   epoch 3 is deleted, but epoch 5 refers to {len(needed)} of its data files: they stay")
    out.print(f"   published epochs now: {', '.join(map(str, driver.job.list_epochs()))}")
    step(5, "Epoch 1 is deleted, so it can be neither opened nor tagged.")
    for attempt in (
        lambda: open_epoch(driver.job, Epoch(1)),
        lambda: create_tag(driver.job, "too-late", Epoch(1), driver.ambient),
    ):
        try:
            attempt()
        except LakestateError as error:
            show_refusal(error)


def restore_at_another_parallelism(driver: Driver) -> None:
    """Restore with another number of subtasks, which rewrites nothing."""
    step(6, "Three subtasks instead of two: nothing is rewritten; each reads its part of the same files.")
    _, manifest = open_epoch(driver.job, Epoch(6))
    rows = []
    for index in range(3):
        task = TaskInfo(driver.job.job_id, "totals", index, 3)
        entries = plan_rescale(task, manifest.operators[0])
        tables = [stored.table("orders") for stored in driver.job.read_subtasks(entries)]
        files = clip_files([file for table in tables if table for file in table.files], task.key_range)
        parts = [pq.read_table(io.BytesIO(driver.job.read_verified(file.object_ref))) for file in files]
        users = {user for part in parts for user in _users_of(part, index)}
        read = ", ".join(str(entry.subtask_index) for entry in entries)
        rows.append((index, read, len(files), ", ".join(sorted(users))))
    show_table(["subtask of 3", "reads metadata of", "files", "its users"], rows)


def _users_of(rows: pa.Table, index: int) -> list[str]:
    owners = subtasks_of(routing_keys([rows["user"]]), 3)
    return [str(user) for user in rows.filter(pa.array(owners == index))["user"].to_pylist()]


def name_a_damaged_file(root: Path, driver: Driver) -> None:
    """Damage a data file: corruption is detected and named."""
    step(8, "One bit of a data file flips on disk; the reader names the file and does not use it.")
    assert driver.parent is not None
    file = driver.job.read_subtasks(driver.parent.operators[0].subtasks)[0].tables[0].files[0]
    on_disk = root / driver.job.job_id / file.path
    data = bytearray(on_disk.read_bytes())
    data[len(data) // 2] ^= 1
    on_disk.write_bytes(data)
    try:
        driver.job.read_verified(file.object_ref)
    except LakestateError as error:
        show_refusal(error)


def main() -> None:
    """Run all steps in a fresh directory."""
    root = Path(tempfile.gettempdir()) / "lakestate-storage-and-protocol"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    store = open_store(f"file://{root}")
    out.print("[bold]Lakestate[/]: durable, open state for streaming operators, on local files")
    first = publish_some_epochs(store)
    second = replay_an_interrupted_commit(store, first)
    fence_the_old_driver(first)
    keep_two_epochs_and_a_tag(second)
    restore_at_another_parallelism(second)
    step(7, "What is on disk: Parquet, Protobuf and JSON, nothing hidden.")
    show_disk(root)
    name_a_damaged_file(root, second)
    out.print(f"\nAll files are still in {root}")


if __name__ == "__main__":
    main()
