"""Bugs that the simulator found, each in the smallest form that shows it."""

from __future__ import annotations

import uuid
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import pyarrow as pa
from tests.support.jobs.small_job import SmallJob, fresh_memory
from tests.support.sinks.sink_job import JOB, SCHEMA, SinkJob

from lakestate.coordinator.upkeep import Upkeep
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.retention import RetentionPolicy
from lakestate.protocol.values import FIRST_GENERATION, Epoch
from lakestate.runtime import sink_clean_up
from lakestate.sinks import JsonLinesSink, Roll
from lakestate.sinks.files.names import FileNaming, sink_fingerprint
from lakestate.storage import ObjectStore, open_store


def test_clean_up_leaves_an_upload_that_the_next_epoch_has_begun_for_an_older_file() -> None:
    """Nothing of the file was stored in its first epoch; its upload was aborted while it was in use."""
    store = open_store(f"memory://{uuid.uuid4().hex}")
    job = _sink_job(store)
    job.publish([job.attempt(0).finish(), job.attempt(1).finish()])
    [other] = store.uploads.list_dangling()
    next_epoch = [job.attempt(0).finish(), job.attempt(1).finish()]
    begun = [each for each in store.uploads.list_dangling() if each.upload != other.upload]
    assert len(begun) == 1
    job.open_sink().committer().clean_up(JOB, Epoch(1), job.published.pre_commits)
    assert begun[0] in store.uploads.list_dangling()
    job.publish(next_epoch)
    job.publish([job.attempt(0).finish(finish_files=True), job.attempt(1).finish(finish_files=True)])
    job.commit()
    files = [store.get(info.path).data for info in store.list() if not info.path.startswith("_")]
    assert sorted(len(data.splitlines()) for data in files) == [12, 60]


def test_an_epoch_without_files_cleans_up_what_failed_attempts_left() -> None:
    """The last epoch of a job had no rows, and the upload of an attempt that had failed stayed open."""
    store = open_store(f"memory://{uuid.uuid4().hex}")
    name = FileNaming("part", "", "json").name(sink_fingerprint("job", "out", "s"), Epoch(2), 0, "lost")
    store.uploads.start(name)
    store.uploads.start(name.replace("0000000002", "0000000004"))
    manifest = Manifest(
        "job",
        Epoch(3),
        FIRST_GENERATION,
        Epoch(2),
        started_ms=0,
        finished_ms=0,
        min_epoch=Epoch(1),
        state_id="s",
    )
    sink = JsonLinesSink(store.url)
    sink.__dict__["store"] = store
    sink_clean_up({"out": sink}, "job")(manifest)
    assert [each.upload.path for each in store.uploads.list_dangling()] == [
        name.replace("0000000002", "0000000004")
    ]


def _sink_job(store: ObjectStore) -> SinkJob:
    def open_sink() -> JsonLinesSink:
        sink = JsonLinesSink(
            store.url, roll=Roll(bytes=10_000, interval=None), part_bytes=300, upload_threads=0
        )
        sink.__dict__["store"] = store
        return sink

    return SinkJob(open_sink, _rows, parallelism=2)


def _rows(epoch: int, subtask: int) -> pa.RecordBatch:
    """Few enough in the first subtask that an epoch does not fill a part."""
    count = 20 if subtask else 4
    rows = [{"row": epoch * 100 + number, "country": "DE", "text": "x" * 20} for number in range(count)]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


class _Later(Executor):
    """Runs what was submitted when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Any, tuple[Any, ...]]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, fn, args))
        return future

    def run(self) -> None:
        for _, fn, args in self.waiting:
            fn(*args)


def test_upkeep_that_begins_late_does_not_collect_the_epoch_that_it_merges() -> None:
    """Newer epochs were published meanwhile; its own retention took away what it was to merge."""
    driver = SmallJob(fresh_memory(), "only")
    driver.start()
    driver.run_epoch()
    merged: list[Epoch] = []
    executor = _Later()

    def compactor(manifest: Manifest, stored: Any, generation: Any) -> dict[int, Any]:
        assert [each.operator_id for each in stored] == [manifest.operators[0].operator_id]
        merged.append(manifest.epoch)
        return {}

    upkeep = Upkeep(
        driver.job,
        driver.claim,
        driver.ambient,
        retention=RetentionPolicy(1),
        compaction=CompactionPolicy(files_min=2, size_floor_bytes=1),
        compactor=compactor,
        clean_up=lambda manifest: None,
        executor=executor,
    )
    driver.run_to(4)
    assert driver.parent is not None
    upkeep.after_epoch(_with_files(driver.parent), {})
    driver.run_to(7)
    executor.run()
    assert merged == [Epoch(4)]


def _with_files(manifest: Manifest) -> Manifest:
    """The same, saying how many files its subtask has; the small job says one."""
    [operator] = manifest.operators
    [subtask] = operator.subtasks
    counted = replace(subtask, summary=replace(subtask.summary, file_count=3))
    return replace(manifest, operators=(replace(operator, subtasks=(counted,)),))
