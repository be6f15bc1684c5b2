"""A crash, a refusal or a lost answer in every batch of `format("lakestate")`, in output or state.

As Spark does, a batch that failed is run again by a new run of the query. Each row is in one file.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from tests.support.sinks.sink_query import Rows, SinkQuery

import lakestate as ls
from lakestate.job import state_backend
from lakestate.sinks.files import sink as file_sink
from lakestate.spark.data_source import job as data_source_job
from lakestate.storage import open_store
from lakestate.testing.faults import Fault, FaultyStore, Operation, SimulatedCrash

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
BATCHES = [2, 1, 3]
"""The partitions of each batch."""

ROWS = 30
ATTEMPTS_MAX = 4
FAULTS = [Fault.CRASH_AFTER, Fault.ANSWER_LOST, Fault.CRASH_BEFORE, Fault.UNAVAILABLE]


def rows(batch: int, partition: int) -> Rows:
    first = (batch * 10 + partition) * ROWS
    numbers = range(first, first + ROWS)
    # Text that does not compress, so that parts of files are uploaded in every batch.
    return [pa.record_batch({"n": numbers, "text": [uuid.uuid4().hex * 4 for _ in numbers]}, schema=SCHEMA)]


@dataclass
class Faults:
    """One fault at one call, counted over all stores and all processes."""

    at: int = -1
    fault: Fault = Fault.NONE
    calls: list[Operation] = field(default_factory=list)

    def hook(self, operation: Operation, path: str) -> Fault:
        self.calls.append(operation)
        return self.fault if len(self.calls) - 1 == self.at else Fault.NONE


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    current = Faults()
    for module in (state_backend, file_sink):
        monkeypatch.setattr(
            module, "open_store", lambda config: FaultyStore(open_store(config), current.hook)
        )
    data_source_job._open_job.cache_clear()
    yield current
    data_source_job._open_job.cache_clear()


def attempted(work: object) -> bool:
    """Do it in processes of its own; False if one of them died."""
    data_source_job._open_job.cache_clear()
    with suppress(SimulatedCrash, ls.LakestateError):
        work()  # type: ignore[operator]
        return True
    return False


def run_with(faults: Faults, folder: Path, at: int, fault: Fault) -> None:
    """All batches, each until it succeeds, and the open files finished: every row is in one file."""
    faults.at, faults.fault, faults.calls = at, fault, []
    root = f"memory://{uuid.uuid4().hex}"
    query = SinkQuery(
        folder,
        SCHEMA,
        {
            "path": f"{root}/out",
            "stateLocation": f"{root}/state",
            "rollSize": "12KB",
            "rollInterval": "none",
            "keptRowSize": "0",
            "partSize": "2000",
            "uploadThreads": "0",
            "compression": "none",
        },
    )
    for batch, partitions in enumerate(BATCHES):
        parts = [rows(batch, number) for number in range(partitions)]
        runs = (query.restarted(f"run-{batch}-{number}") for number in range(ATTEMPTS_MAX))
        assert any(attempted(lambda run=run, b=batch, p=parts: run.run(b, p)) for run in runs)
    assert any(attempted(lambda: ls.finish_files(**query.options)) for _ in range(ATTEMPTS_MAX))
    store = open_store(f"{root}/out")
    visible = [info.path for info in store.list() if not info.path.startswith("_")]
    tables = [pq.read_table(pa.BufferReader(store.get(path).data), columns=["n"]) for path in visible]
    found = sorted(n for table in tables for n in table["n"].to_pylist())
    expected = [
        n
        for batch, count in enumerate(BATCHES)
        for part in range(count)
        for n in rows(batch, part)[0]["n"].to_pylist()
    ]
    assert found == expected, f"{fault} at call {at}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", range(len(FAULTS)))
def test_a_fault_at_some_calls_of_every_kind_loses_and_doubles_nothing(
    faults: Faults, tmp_path: Path, kind: int
) -> None:
    run_with(faults, tmp_path, -1, Fault.NONE)
    calls = list(faults.calls)
    # Of the writes a quarter for each fault, and of the reads, which change nothing, fewer.
    chosen = [
        number
        for number, call in enumerate(calls)
        if (call.writes and number % 4 == kind) or number % 32 == kind
    ]
    assert len(chosen) > 10
    for number in chosen:
        run_with(faults, tmp_path, number, FAULTS[kind])
