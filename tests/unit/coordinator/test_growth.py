"""Nothing grows over many small epochs: objects, bytes, requests, cached files, threads, open files.

Counts, not times: they do not depend on the machine.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.support.jobs.counting_operators import SharedTotals

import lakestate as ls
from lakestate.coordinator.job_driver import DriverSettings
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.retention import RetentionPolicy
from lakestate.tables.hashing.routing import routing_keys, subtasks_of
from lakestate.testing.chained_job import ChainedJob
from lakestate.testing.counting import CountingStore, count_requests

KEYS = 400
PARALLELISM = 4


@dataclass(frozen=True)
class Costs:
    """What a job uses after an epoch."""

    objects: int
    stored_bytes: int
    manifest_bytes: int
    requests: float
    written_bytes: float
    cached_files: int
    threads: int
    descriptors: int


class Growing:
    """A job with a keyed and a replicated table and a sink, whose keys are all known after some epochs."""

    def __init__(self, folder: Path) -> None:
        self._cache = folder / "cache"
        self._backend = ls.ParquetBackend(f"memory://{uuid.uuid4().hex}", cache_dir=self._cache)
        self._counting: CountingStore = count_requests(self._backend)
        self._job = ChainedJob(
            SharedTotals(),
            self._backend,
            key="k",
            parallelism=PARALLELISM,
            sink=ls.ParquetSink(f"memory://{uuid.uuid4().hex}", roll=ls.Roll(bytes="20kB")),
            settings=DriverSettings(RetentionPolicy(10)),
        )
        self._random = np.random.default_rng(1)

    def run(self, epochs: int) -> Costs:
        """Run epochs; the costs of each are an average over all of them."""
        self._counting.take()
        for _ in range(epochs):
            keys = self._random.choice(KEYS, 40, replace=False)
            self._job.epoch(pa.table({"k": keys, "n": np.ones(len(keys), dtype=np.int64)}))
        counted = self._counting.take()
        stored = [*self._counting.inner.list()]
        newest = max((each for each in stored if each.path.endswith("/manifest.pb")), key=_epoch)
        return Costs(
            objects=len(stored),
            stored_bytes=sum(each.size_bytes for each in stored),
            manifest_bytes=newest.size_bytes,
            requests=counted.total / epochs,
            written_bytes=counted.bytes_written / epochs,
            cached_files=sum(1 for each in self._cache.iterdir() if each.is_file()),
            threads=threading.active_count(),
            descriptors=sum(1 for _ in Path("/proc/self/fd").iterdir()),
        )


class Latest(ls.Operator):
    """Every subtask that has rows writes an entry that all subtasks read."""

    output = "k bigint"
    latest = ls.GlobalKeyedTable(key=int, value=int)

    def process_batch(self, batch: pa.RecordBatch, ctx: ls.OperatorContext) -> Iterator[pa.Table]:
        ctx.latest.insert(ctx.task.subtask_index, batch["k"][0].as_py())
        yield from ()


@pytest.mark.slow
@pytest.mark.parametrize(("parallelism", "writers"), [(4, 4), (16, 16), (64, 16)])
def test_a_replicated_table_has_a_constant_and_one_epoch_of_files_more_than_there_are_subtasks(
    tmp_path: Path, parallelism: int, writers: int
) -> None:
    backend = ls.ParquetBackend(f"memory://{uuid.uuid4().hex}", cache_dir=tmp_path)
    counting = count_requests(backend)
    job = ChainedJob(Latest(), backend, key="k", parallelism=parallelism)
    keys = np.arange(100 * parallelism)
    owners = subtasks_of(routing_keys([pa.array(keys)]), parallelism)
    key_of = [keys[owners == index][0] for index in range(parallelism)]
    random, files, writes = np.random.default_rng(1), [], 0
    for epoch in range(1, 101):
        chosen = random.permutation(parallelism)[:writers]
        counting.take()
        job.epoch(pa.table({"k": [key_of[index] for index in chosen]}))
        writes += counting.take().writes
        stored = backend.load_operator_metadata("job", epoch, "operator").values()
        files.append(sum(len(table.files) for metadata in stored for table in metadata.tables))
    assert max(files) < CompactionPolicy().files_max + parallelism + writers
    assert writes / 100 < 2 * writers + 15


def _epoch(info: object) -> int:
    return int(str(info.path).split("/")[-2])


@pytest.mark.slow
def test_nothing_grows_between_the_hundredth_and_the_two_hundredth_epoch(tmp_path: Path) -> None:
    job = Growing(tmp_path)
    before, after = job.run(100), job.run(100)
    # Runs of a merge tree come and go, so that a count depends on where in its cycle it is taken.
    grown = {name: value for name, value in asdict(after).items() if value > 1.25 * asdict(before)[name] + 8}
    assert grown == {}
