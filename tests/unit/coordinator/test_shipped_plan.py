"""What travels to each subtask with the plan: what it restores from, and nothing that is committed."""

from __future__ import annotations

import pickle
import uuid
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.support.jobs.counting_operators import SharedTotals, Totals

import lakestate as ls
from lakestate.coordinator.epoch_plan import EpochPlan, EpochResult, SubtaskReport
from lakestate.coordinator.job_driver import JobDriver
from lakestate.protocol.values import TaskInfo
from lakestate.storage.parallel import InlineExecutor
from lakestate.tables.manager import TableManager
from lakestate.testing.chained_job import ChainedJob

BYTES_MAX = 600
"""Of the plan, for each subtask of an operator with a keyed and a replicated table and of a sink."""


class Watched(ChainedJob):
    """A job that keeps the newest plan as its subtasks get it."""

    plan: EpochPlan

    def _run_subtask(self, index: int, plan: EpochPlan, rows: pa.Table) -> SubtaskReport:
        self.plan = plan.for_subtasks()
        return super()._run_subtask(index, plan, rows)


def watched(folder: Path, operator: ls.Operator, parallelism: int) -> Watched:
    backend = ls.ParquetBackend(f"memory://{uuid.uuid4().hex}", cache_dir=folder)
    sink = ls.ParquetSink(f"memory://{uuid.uuid4().hex}", roll=ls.Roll(bytes="1kB"))
    return Watched(operator, backend, key="k", parallelism=parallelism, sink=sink)


def rows(parallelism: int, seed: int) -> pa.Table:
    keys = np.random.default_rng(seed).choice(100_000, 16 * parallelism, replace=False)
    return pa.table({"k": keys, "n": np.ones(len(keys), dtype=np.int64)})


def shipped_bytes(folder: Path, parallelism: int) -> int:
    job = watched(folder, SharedTotals(), parallelism)
    for seed in range(6):
        job.epoch(rows(parallelism, seed))
    return len(pickle.dumps(job.plan))


def test_the_plan_grows_by_a_few_hundred_bytes_for_each_subtask(tmp_path: Path) -> None:
    sizes = {count: shipped_bytes(tmp_path / str(count), count) for count in (4, 16, 64)}
    growth = [(sizes[16] - sizes[4]) / 12, (sizes[64] - sizes[16]) / 48]
    assert [round(each) for each in growth if each > BYTES_MAX] == []


@pytest.mark.parametrize("parallelism", [4, 16, 64])
def test_a_subtask_decodes_its_own_metadata_and_no_others(tmp_path: Path, parallelism: int) -> None:
    job = watched(tmp_path, Totals(), parallelism)
    for seed in range(2):
        job.epoch(rows(parallelism, seed))
    plan = pickle.loads(pickle.dumps(job.plan))
    assert plan == job.plan
    task = TaskInfo("job", "operator", parallelism - 1, parallelism)
    entry = plan.parent.require_operator("operator")
    found = plan.stored["operator"].open(entry, task, job.backend.objects("job"))
    assert [each.subtask_index for each, _ in found.subtasks] == [parallelism - 1]
    assert [metadata.subtask_index for _, metadata in found.subtasks] == [parallelism - 1]


COMMITTED = np.random.default_rng(1).bytes(100_000)
ANNOUNCED = ls.GlobalKeyedTable("announced", key=int, value=int, two_phase_commit=True)


class Announcing:
    """A job of one subtask, which has nothing but commit data."""

    def __init__(self) -> None:
        self.backend = ls.ParquetBackend(f"memory://{uuid.uuid4().hex}", cache_bytes=0)
        self.driver = JobDriver(
            self.backend, "job", {"op": 1}, {"op": lambda *_: None}, upkeep_executor=InlineExecutor()
        )
        self.driver.start()
        self.shipped_bytes: list[int] = []

    def epoch(self, data: bytes | None, *, with_shipped: bool = True) -> tuple[str, bytes | None]:
        """Run an epoch; where its metadata is, and what that has to commit."""

        def run(plan: EpochPlan) -> EpochResult:
            self.shipped_bytes.append(len(pickle.dumps(plan.for_subtasks())))
            task = TaskInfo("job", "op", generation=plan.generation)
            shipped = plan.stored.get("op") if with_shipped else None
            tables = TableManager.load(task, [ANNOUNCED], self.backend, plan.parent, shipped=shipped)
            if data is not None:
                tables.global_keyed("announced").set_commit_data(data)
            done = tables.checkpoint(plan.epoch, plan.min_epoch, None, False)
            return EpochResult((SubtaskReport("stage", 0, (done,)),))

        self.driver.run_epoch(self.driver.next_epoch(), run)
        manifest = self.backend.load_checkpoint_metadata("job")
        path = manifest.require_operator("op").subtasks[0].metadata.path
        stored = self.backend.load_operator_metadata("job", manifest.epoch, "op")[0]
        return path, stored.tables[0].commit_data


def test_what_is_committed_is_not_shipped() -> None:
    job = Announcing()
    job.epoch(COMMITTED)
    job.epoch(None)
    assert max(job.shipped_bytes) < 2_000


@pytest.mark.parametrize("with_shipped", [True, False])
def test_what_is_committed_is_stored_again_only_if_it_differs(*, with_shipped: bool) -> None:
    job = Announcing()
    digest = blake2b(COMMITTED, digest_size=16).digest()
    given = [COMMITTED, COMMITTED, None, None, b"", COMMITTED, digest]
    found = [job.epoch(data, with_shipped=with_shipped) for data in given]
    assert [data for _, data in found] == given
    paths = [path for path, _ in found]
    assert [before == after for before, after in pairwise(paths)] == [True, False, True, False, False, False]
    assert ls.verify(job.backend, "job").is_clean
