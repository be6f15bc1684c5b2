"""Columns and fields whose names are also paths or need quoting: stored, merged and read as any other."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

import lakestate as ls

LONG = "x" * 100_000
CASES = [
    ("`q.r` bigint, q struct<r:string>", [{"k": "a", "q.r": 1, "q": {"r": "x"}}]),
    ("`q.r` string, q struct<r:bigint>", [{"k": "a", "q.r": LONG, "q": {"r": 1}}]),
    ("q array<string>, `q.list.element` double", [{"k": "a", "q": ["x"], "q.list.element": 1.5}]),
    ("s struct<`my field`:bigint,`a int,b`:string>", [{"k": "a", "s": {"my field": 1, "a int,b": "x"}}]),
    ("s array<struct<`gr\u00f6\u00dfe`:bigint>>", [{"k": "a", "s": [{"gr\u00f6\u00dfe": 1}]}]),
]


@pytest.mark.parametrize(("value", "rows"), CASES, ids=[case[0] for case in CASES])
def test_what_was_declared_can_be_stored_merged_and_restored(
    value: str, rows: list[dict[str, object]]
) -> None:
    table = ls.KeyedTable("t", key="k string", value=value)
    backend = ls.ParquetBackend(f"memory://names-{uuid.uuid4().hex}")
    task = ls.TaskInfo("job", "op")
    manager = ls.TableManager.load(task, [table], backend, None)
    for epoch in range(1, 10):
        manager.keyed("t").put(pa.Table.from_pylist(rows))
        done = manager.checkpoint(epoch, 1, None, then_stop=False)
        backend.write_checkpoint_metadata("job", epoch, [done])
    merges = backend.compact_operator("job", "op", tables=[table])
    restored = ls.TableManager.load(task, [table], backend, 9)
    restored.apply_compacted(merges.of_subtask(0))
    assert pa.Table.from_batches(restored.keyed("t").scan()).to_pylist() == rows
