"""Read back what a run has written, and compare it with the job's oracle row by row."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakestate.job.state_backend import StateBackend
from lakestate.operators.operator import state_tables
from lakestate.protocol.values import Epoch, TaskInfo
from lakestate.tables.manager import TableManager
from lakestate.testing.simulation.cluster.process import Process, SimulatedBackend
from lakestate.testing.simulation.cluster.world import JOB_ID, World
from lakestate.testing.simulation.job import SimulatedJob
from lakestate.testing.simulation.seen import Row

Rows = list[dict[str, Any]]
NEWEST_VERSION = 2


def restore_state(world: World, epoch: Epoch, parallelism: int) -> dict[str, Rows]:
    """All tables of an epoch, read from the store itself, without faults."""
    process = Process(world, "oracle", "oracle")
    return read_state(world.job, SimulatedBackend(process, world.state), epoch, parallelism)


def read_state(
    job: SimulatedJob, backend: StateBackend, epoch: Epoch, parallelism: int, job_id: str = JOB_ID
) -> dict[str, Rows]:
    """All tables of an epoch, restored by `parallelism` subtasks. The job may be a fork."""
    found: dict[str, Rows] = {}
    operator = job.operator("oracle", NEWEST_VERSION)
    tables, declared = state_tables(operator), operator.tables()
    for index in range(parallelism):
        task = TaskInfo(job_id, job.operator_id, index, parallelism)
        manager = TableManager.load(task, tables, backend, epoch)
        for name, table in declared.items():
            # Every subtask has all rows of a replicated table: one of them is enough.
            if index == 0 or not table.table_type.is_replicated:
                found.setdefault(name, []).extend(manager.view(table.name).to_pylist())
    return found


def row_difference(job: SimulatedJob, found: Sequence[Row], expected: Sequence[Row]) -> str | None:
    """How the rows differ, or None."""
    return counter_difference(Counter(job.comparable(found)), Counter(job.comparable(expected)))


def counter_difference(have: Counter[Any], want: Counter[Any]) -> str | None:
    """How comparable rows differ, or None."""
    if have == want:
        return None
    missing, surplus = list((want - have).elements()), list((have - want).elements())
    return f"missing {missing[:3]} ({len(missing)}), too many {surplus[:3]} ({len(surplus)})"


def output_rows(world: World, data: bytes) -> Rows:
    """The rows of one file of output."""
    if world.scenario.is_parquet:
        rows: Rows = pq.read_table(pa.BufferReader(data)).to_pylist()
        return rows
    return [json.loads(line) for line in data.splitlines()]
