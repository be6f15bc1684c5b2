"""What an epoch asks of the store: the same for each subtask that changed something, and a constant.

A change that adds a request fails here. Costs are counted, so they do not depend on the machine.
"""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.support.jobs.counting_operators import SharedTotals, Totals

import lakestate as ls
from lakestate.coordinator.job_driver import DriverSettings
from lakestate.protocol.retention import RetentionPolicy
from lakestate.tables.hashing.routing import routing_keys, subtasks_of
from lakestate.testing.chained_job import ChainedJob
from lakestate.testing.counting import CountingStore, RequestCount, count_requests

KEYS = 100_000
PUBLISH = {
    "create manifest": 1,
    "get fence": 2,
    "create epoch record": 1,
    "get retention boundary": 1,
    "create commit marker": 1,
}
"""Publishing and committing an epoch."""
CONSTANT_MAX = 15
EACH_SUBTASK = {"put data file": 1, "create subtask metadata": 1, "get subtask metadata": 1}


def started(
    folder: Path, operator: ls.Operator, parallelism: int, *, with_sink: bool = False, keep_epochs: int = 10
) -> tuple[ChainedJob, CountingStore]:
    backend = ls.ParquetBackend(f"memory://{uuid.uuid4().hex}", cache_dir=folder / "cache")
    counting = count_requests(backend)
    sink = ls.ParquetSink(f"memory://{uuid.uuid4().hex}", roll=ls.Roll(bytes="1GB")) if with_sink else None
    settings = DriverSettings(RetentionPolicy(keep_epochs))
    job = ChainedJob(operator, backend, key="k", parallelism=parallelism, sink=sink, settings=settings)
    return job, counting


def restarted(job: ChainedJob) -> ChainedJob:
    """The same job with a new driver."""
    return ChainedJob(
        SharedTotals(),
        job.backend,
        key="k",
        parallelism=job.parallelism,
        sink=job.sink,
        settings=job.settings,
    )


def rows_for(parallelism: int, subtasks: int, seed: int) -> pa.Table:
    """Rows for so many of the subtasks, several for each."""
    keys = np.random.default_rng(seed).choice(KEYS, 16 * parallelism, replace=False)
    owners = subtasks_of(routing_keys([pa.array(keys)]), parallelism)
    keys = keys[owners < subtasks]
    assert len(np.unique(owners[owners < subtasks])) == subtasks
    return pa.table({"k": keys, "n": np.ones(len(keys), dtype=np.int64)})


def counted_epochs(
    job: ChainedJob, counting: CountingStore, parallelism: int, subtasks: int, count: int
) -> list[RequestCount]:
    counting.take()
    found = []
    for seed in range(count):
        job.epoch(rows_for(parallelism, subtasks, seed))
        found.append(counting.take())
    return found


@pytest.mark.parametrize("parallelism", [4, 16, 64])
def test_an_epoch_asks_for_what_each_changed_subtask_needs_and_a_constant(
    tmp_path: Path, parallelism: int
) -> None:
    job, counting = started(tmp_path, Totals(), parallelism, keep_epochs=1000)
    counted_epochs(job, counting, parallelism, parallelism, 1)
    [counted] = counted_epochs(job, counting, parallelism, parallelism, 1)
    expected = Counter(PUBLISH) + Counter(dict.fromkeys(EACH_SUBTASK, parallelism))
    assert counted.shown() == dict(sorted(expected.items()))


@pytest.mark.parametrize("parallelism", [4, 16, 64])
def test_a_subtask_that_changed_nothing_asks_for_nothing(tmp_path: Path, parallelism: int) -> None:
    job, counting = started(tmp_path, Totals(), parallelism, with_sink=True, keep_epochs=1000)
    counted_epochs(job, counting, parallelism, parallelism, 1)
    [counted] = counted_epochs(job, counting, parallelism, 1, 1)
    # One subtask of the operator and one of the sink.
    expected = Counter(PUBLISH) + Counter(dict.fromkeys(EACH_SUBTASK, 2))
    assert counted.shown() == dict(sorted(expected.items()))


def test_an_epoch_that_changed_ten_keys_writes_at_most_40_kb_with_everything_in_it(tmp_path: Path) -> None:
    job, counting = started(tmp_path, Totals(), 16)
    job.epoch(pa.table({"k": np.arange(KEYS), "n": np.ones(KEYS, dtype=np.int64)}))
    written = []
    for seed in range(14):
        counting.take()
        keys = np.random.default_rng(seed).choice(KEYS, 10, replace=False)
        job.epoch(pa.table({"k": keys, "n": np.ones(10, dtype=np.int64)}))
        written.append(counting.take().bytes_written)
    assert max(written) <= 40_000


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [4, 16])
@pytest.mark.parametrize("operator", [Totals, SharedTotals])
def test_the_average_stays_within_its_bound_with_retention_merges_and_a_sink(
    tmp_path: Path, parallelism: int, operator: type[ls.Operator]
) -> None:
    job, counting = started(tmp_path, operator(), parallelism, with_sink=True)
    counted_epochs(job, counting, parallelism, parallelism, 14)
    counted = counted_epochs(job, counting, parallelism, parallelism, 20)
    changed = 2 * parallelism
    # A subtask that writes to a replicated table stores one file more, which is read once, to be merged.
    replicated = parallelism if operator is SharedTotals else 0
    files = changed + replicated
    writes = sum(each.writes for each in counted) / len(counted)
    total = sum(each.total for each in counted) / len(counted)
    assert writes <= files + changed + CONSTANT_MAX
    assert total <= files + replicated + 2 * changed + CONSTANT_MAX


def test_after_a_restart_metadata_is_read_once(tmp_path: Path) -> None:
    parallelism = 16
    job, counting = started(tmp_path, SharedTotals(), parallelism, with_sink=True, keep_epochs=1000)
    counted_epochs(job, counting, parallelism, parallelism, 3)
    job = restarted(job)
    [first, second] = counted_epochs(job, counting, parallelism, parallelism, 2)
    read, written = first.shown()["get subtask metadata"], first.shown()["create subtask metadata"]
    assert read - written == 2 * parallelism
    assert second.shown()["get subtask metadata"] == second.shown()["create subtask metadata"]
