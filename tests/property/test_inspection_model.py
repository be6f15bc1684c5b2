"""Rows, changes and history of a table that is written, migrated, compacted and rescaled, against a dict."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.jobs.row_changes import changes_by_key, changes_of
from tests.support.jobs.table_job import EAGER, PARTIAL, TableJob
from tests.support.small_files import shape_as_large

import lakestate as ls
from lakestate.tables.hashing.routing import routing_keys, subtasks_of

VERSIONS = [
    ls.KeyedTable("t", key="a bigint, b string", value="n int", route_by=["a"]),
    ls.KeyedTable(
        "t",
        key="a bigint, b string",
        value="n bigint",
        route_by=["a"],
        version=2,
        migrations=[ls.ColumnChanges(1, widen={"n": "bigint"})],
    ),
]
Key = tuple[int | None, str | None]
KEYS = st.tuples(st.none() | st.integers(0, 6), st.none() | st.sampled_from("xy"))


@dataclass(frozen=True)
class Step:
    """One epoch: what is put and deleted, and what happens after it."""

    puts: dict[Key, int] = field(default_factory=dict)
    deletes: frozenset[Key] = frozenset()
    parallelism: int = 1
    policy: Any = None
    migrates: bool = False


STEPS = st.lists(
    st.builds(
        Step,
        st.dictionaries(KEYS, st.integers(0, 2), max_size=6),
        st.frozensets(KEYS, max_size=4),
        st.integers(1, 4),
        st.sampled_from([None, EAGER, PARTIAL]),
        st.booleans(),
    ),
    min_size=2,
    max_size=8,
)


def as_rows(keys: list[Key]) -> pa.Table:
    columns = {"a": [a for a, _ in keys], "b": [b for _, b in keys]}
    return pa.table(columns, schema=pa.schema([("a", pa.int64()), ("b", pa.string())]))


def owned(job: TableJob, keys: list[Key]) -> dict[int, list[Key]]:
    owners = subtasks_of(routing_keys([pa.array([a for a, _ in keys], pa.int64())]), job.parallelism)
    return {
        index: [key for key, owner in zip(keys, owners.tolist(), strict=True) if owner == index]
        for index in range(job.parallelism)
    }


def run_step(job: TableJob, step: Step, model: dict[Key, int]) -> None:
    type_ = pa.int32() if job.tables == VERSIONS[:1] else pa.int64()
    for index, keys in owned(job, list(step.puts)).items():
        values = pa.array([step.puts[key] for key in keys], type_)
        job.managers[index].keyed("t").put(as_rows(keys).append_column("n", values))
    for index, keys in owned(job, list(step.deletes)).items():
        job.managers[index].keyed("t").delete(as_rows(keys))
    model |= step.puts
    for key in step.deletes:
        model.pop(key, None)
    job.checkpoint()
    if step.policy is not None:
        job.compact(step.policy)
    job.restart(step.parallelism, VERSIONS[1:] if step.migrates else None)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, in_row_groups=st.booleans())
def test_rows_changes_and_history_are_those_of_the_model(steps: list[Step], in_row_groups: bool) -> None:
    stack = shape_as_large()
    if not in_row_groups:
        stack.close()
    job, model = TableJob(VERSIONS[:1], 2), dict[Key, int]()
    expected: dict[int, list[dict[str, Any]]] = {0: []}
    with stack:
        for number, step in enumerate(steps, start=1):
            run_step(job, step, model)
            expected[number] = [{"a": a, "b": b, "n": n} for (a, b), n in model.items()]
        state = ls.open(job.backend.objects("job").store.url).job("job")
        table = state.table("op", VERSIONS[1])
        for epoch in range(1, len(steps) + 1):
            found = table.at(epoch).to_arrow().to_pylist()
            assert sorted(found, key=repr) == sorted(expected[epoch], key=repr)
        for before, after in [*pairwise(expected), (1, len(steps)), (len(steps), 1)]:
            changes = table.changes(before or None, after).to_arrow()
            wanted = changes_by_key(expected[before], expected[after], ["a", "b"], lambda row: False)
            assert changes_of(changes) == wanted
        for a, b in {*steps[0].puts, (1, "x"), (None, None)}:
            told = {
                epoch: [*version.rows]
                for version in table.history({"a": a, "b": b})
                for epoch in range(version.first, version.last + 1)
            }
            assert told == {
                epoch: [row for row in rows if (row["a"], row["b"]) == (a, b)]
                for epoch, rows in expected.items()
                if epoch
            }
    job.close()
