"""A crash, a refusal or a lost answer at every call that a sink makes: each row in one visible file."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.sinks.sink_job import Attempt, SinkJob, expected_rows, numbered_rows

from lakestate.errors import LakestateError
from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.formats.parquet.sink import ParquetSink
from lakestate.sinks.rolling import Roll
from lakestate.storage import ObjectStore, open_store
from lakestate.testing.faults import Fault, FaultyStore, Hook, faults_at, no_faults

EPOCHS = 4
PARALLELISM = 2
ROWS = numbered_rows(200)


@dataclass
class Processes:
    """Sinks on one store, each of a process of its own; the calls of all are counted through."""

    inner: ObjectStore
    hook: Hook = no_faults
    calls: list[str] = field(default_factory=list)

    def open_sink(self) -> FileSink:
        sink = ParquetSink(
            self.inner.url,
            roll=Roll(bytes="20 KiB", interval=None),
            kept_row_bytes=2_000,
            part_bytes=4_000,
            upload_threads=0,
            compression="none",
        )
        store = FaultyStore(self.inner, self._counted)
        sink.__dict__["store"] = store
        return sink

    def _counted(self, operation: object, path: str) -> Fault:
        self.calls.append(f"{getattr(operation, 'value', operation)} {path}")
        return self.hook(operation, path)  # type: ignore[arg-type]


def memory() -> ObjectStore:
    return open_store(f"memory://{uuid.uuid4().hex}")


def job_of(processes: Processes) -> SinkJob:
    return SinkJob(processes.open_sink, ROWS, PARALLELISM)


def visible_rows(store: ObjectStore) -> list[int]:
    files = [info.path for info in store.list() if not info.path.startswith("_")]
    tables = [pq.read_table(pa.BufferReader(store.get(path).data), columns=["row"]) for path in files]
    return sorted(number for table in tables for number in table["row"].to_pylist())


def check_promises(store: ObjectStore) -> None:
    assert visible_rows(store) == expected_rows(ROWS, EPOCHS, PARALLELISM)
    assert list(store.uploads.list_dangling()) == [], "an upload dangles"
    assert [info.path for info in store.list() if info.path.startswith("_")] == []


def calls_of_a_run() -> list[str]:
    processes = Processes(memory())
    job_of(processes).run_to(EPOCHS)
    check_promises(processes.inner)
    return processes.calls


CALLS = calls_of_a_run()


def test_a_run_without_faults_uses_every_kind_of_call() -> None:
    used = {call.split()[0] for call in CALLS}
    assert used >= {"uploads.start", "uploads.put_part", "uploads.complete", "create", "delete"}


@pytest.mark.slow
@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.NONE])
def test_each_row_is_in_one_file_after_a_fault_at_any_call(fault: Fault) -> None:
    for number, call in enumerate(CALLS):
        processes = Processes(memory(), faults_at({number: fault}))
        job_of(processes).run_to(EPOCHS)
        try:
            check_promises(processes.inner)
        except AssertionError as error:
            raise AssertionError(f"{fault.value} at call {number}: {call}") from error


@pytest.mark.slow
@pytest.mark.parametrize("distance", [1, 2, 5])
def test_each_row_is_in_one_file_after_two_crashes(distance: int) -> None:
    for number in range(len(CALLS)):
        hook = faults_at({number: Fault.CRASH_AFTER, number + distance: Fault.CRASH_AFTER})
        processes = Processes(memory(), hook)
        job_of(processes).run_to(EPOCHS)
        check_promises(processes.inner)


WAKE_UPS = ["before publishing", "before the commit", "after the commit", "after clean-up", "an epoch later"]


@pytest.mark.parametrize("wake_up", WAKE_UPS)
@pytest.mark.parametrize("begun_in", [1, 2])
def test_a_zombie_cannot_change_what_its_successor_wrote(begun_in: int, wake_up: str) -> None:
    processes = Processes(memory())
    job = job_of(processes)
    job.run_to(begun_in - 1, finish_files=False)
    # The zombie has the same rows in another order, as after another shuffle.
    zombie_job = SinkJob(
        processes.open_sink, _reversed_rows, PARALLELISM, published=job.published, ambient=job.ambient
    )
    zombie = zombie_job.attempt(0)
    wake = partial(_finish_quietly, zombie)
    views = [job.attempt(subtask).finish() for subtask in range(PARALLELISM)]
    steps = {
        "before publishing": partial(job.publish, views),
        "before the commit": job.commit,
        "after the commit": job.clean_up,
        "after clean-up": job.run_epoch,
        "an epoch later": partial(job.run_to, EPOCHS),
    }
    for moment, step in steps.items():
        if moment == wake_up:
            wake()
        step()
    job.clean_up()
    check_promises(processes.inner)


def _reversed_rows(epoch: int, subtask: int) -> pa.RecordBatch:
    rows = ROWS(epoch, subtask)
    return rows.take(pa.array(range(len(rows) - 1, -1, -1)))


def _finish_quietly(zombie: Attempt) -> None:
    # What it writes to may be gone by now.
    with suppress(LakestateError):
        zombie.finish()
