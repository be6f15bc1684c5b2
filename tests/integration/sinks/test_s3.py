"""The Parquet sink on a real S3 server: uploads that continue, faults at every kind of call, zombies."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.sinks.sink_job import SCHEMA, SinkJob, expected_rows

from lakestate.errors import NotFoundError
from lakestate.sinks import ParquetSink, Roll
from lakestate.storage import ObjectStore, open_store
from lakestate.testing.faults import Fault, FaultyStore, Hook, Operation, no_faults

if TYPE_CHECKING:
    from lakestate.config import StoreConfig

EPOCHS = 3
EPOCH_ROWS = 40
TEXT_BYTES = 100_000


def large_rows(epoch: int, subtask: int) -> pa.RecordBatch:
    """About 4 MB that do not compress: a part of 5 MiB takes more than an epoch."""
    random = np.random.default_rng([epoch, subtask])
    numbers = range(epoch * 1000 + subtask * 100, epoch * 1000 + subtask * 100 + EPOCH_ROWS)
    texts = [random.bytes(TEXT_BYTES // 2).hex() for _ in numbers]
    countries = ["DE"] * EPOCH_ROWS
    return pa.record_batch({"row": numbers, "country": countries, "text": texts}, schema=SCHEMA)


def job_on(store: ObjectStore, hook: Hook = no_faults) -> SinkJob:
    def open_sink() -> ParquetSink:
        sink = ParquetSink(
            store.url,
            roll=Roll(bytes="100MB", interval=None),
            kept_row_bytes=0,
            part_bytes=1,
            compression="none",
            upload_threads=2,
        )
        sink.__dict__["store"] = FaultyStore(store, hook)
        return sink

    return SinkJob(open_sink, large_rows, parallelism=1)


def check_promises(store: ObjectStore) -> None:
    # A zombie that comes after the last commit may leave a claim; the next clean-up takes it.
    visible = [info.path for info in store.list() if not info.path.startswith("_lakestate/lanes/")]
    tables = [pq.read_table(pa.BufferReader(store.get(path).data), columns=["row"]) for path in visible]
    rows = sorted(number for table in tables for number in table["row"].to_pylist())
    assert rows == expected_rows(large_rows, EPOCHS, 1)
    assert list(store.uploads.list_dangling()) == []


@dataclass
class OneFault:
    """A hook: a fault at one call of a kind."""

    operation: Operation
    fault: Fault
    skip: int = 0
    seen: int = 0

    def __call__(self, operation: Operation, path: str) -> Fault:
        if operation is not self.operation:
            return Fault.NONE
        self.seen += 1
        return self.fault if self.seen == self.skip + 1 else Fault.NONE


def test_one_file_grows_over_all_epochs(s3_config: StoreConfig) -> None:
    store = open_store(s3_config)
    job_on(store).run_to(EPOCHS)
    check_promises(store)
    assert len(list(store.list())) == 1


WRITES = [
    (Operation.UPLOAD_START, 0),
    (Operation.UPLOAD_PART, 0),
    (Operation.UPLOAD_PART, 1),
    (Operation.CREATE, 0),
    (Operation.UPLOAD_COMPLETE, 0),
    (Operation.DELETE, 0),
]


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.ANSWER_LOST])
@pytest.mark.parametrize(("operation", "skip"), WRITES)
def test_each_row_is_in_one_file_after_a_fault(
    s3_config: StoreConfig, operation: Operation, skip: int, fault: Fault
) -> None:
    store = open_store(s3_config)
    hook = OneFault(operation, fault, skip)
    job_on(store, hook).run_to(EPOCHS)
    assert hook.seen > skip, "the call was never made"
    check_promises(store)


@pytest.mark.parametrize("wake_up", ["before publishing", "before the commit", "after the commit"])
def test_a_zombie_cannot_change_what_its_successor_wrote(s3_config: StoreConfig, wake_up: str) -> None:
    store = open_store(s3_config)
    job = job_on(store)
    job.run_to(EPOCHS - 1, finish_files=False)
    assert len(list(store.uploads.list_dangling())) == 1, "both continue one upload"
    zombie = job.attempt(0)
    zombie.batch = zombie.batch.take(pa.array(range(EPOCH_ROWS - 1, -1, -1)))
    views = [job.attempt(0).finish(finish_files=True)]
    steps = {
        "before publishing": partial(job.publish, views),
        "before the commit": job.commit,
        "after the commit": job.clean_up,
    }
    for moment, step in steps.items():
        if moment == wake_up:
            # After the commit there is no upload any more.
            with suppress(NotFoundError):
                zombie.finish()
        step()
    check_promises(store)


def test_an_upload_that_was_aborted_is_reported_and_nothing_is_visible(s3_config: StoreConfig) -> None:
    store = open_store(s3_config)
    job = job_on(store)
    job.run_to(2, finish_files=False)
    [dangling] = list(store.uploads.list_dangling())
    store.uploads.abort(dangling.upload)
    with pytest.raises(Exception, match="no such upload") as raised:
        job.attempt(0).finish()
    assert type(raised.value).__name__ == "NotFoundError"
    assert [info.path for info in store.list() if not info.path.startswith("_")] == []


def test_a_store_that_vanishes_is_reported(s3_config: StoreConfig) -> None:
    store = open_store(s3_config)
    job = job_on(store, OneFault(Operation.UPLOAD_START, Fault.UNAVAILABLE))
    job.run_epoch()
    assert job.failures == 0
    with pytest.raises(Exception, match="does not answer") as raised:
        job.attempt(0).finish()
    assert type(raised.value).__name__ == "StorageUnavailableError"
