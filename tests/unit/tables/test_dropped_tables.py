"""A table that is dropped from an operator: the others stay, and its files are no longer carried."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

import lakestate as ls
from lakestate.protocol.retention import RetentionPlan

KEPT = ls.KeyedTable("kept", key="k bigint", value="n bigint")
DROPPED = ls.KeyedTable("dropped", key="k bigint", value="n bigint")
SHARED = ls.GlobalKeyedTable("shared", key=str, value=int)
ROWS = pa.table({"k": [1, 2, 3], "n": [10, 20, 30]})


@pytest.fixture
def backend() -> ls.ParquetBackend:
    """The state of one epoch with three tables."""
    backend = ls.ParquetBackend(f"memory://{uuid.uuid4().hex}", cache_bytes=0)
    tables = ls.TableManager.load(ls.TaskInfo("job", "op"), [KEPT, DROPPED, SHARED], backend, None)
    tables.keyed("kept").put(ROWS)
    tables.keyed("dropped").put(ROWS)
    tables.global_keyed("shared").insert("a", 1)
    backend.write_checkpoint_metadata("job", 1, [tables.checkpoint(1, 1, None, False)])
    return backend


def load(backend: ls.ParquetBackend, epoch: int, parallelism: int = 1, index: int = 0) -> ls.TableManager:
    task = ls.TaskInfo("job", "op", index, parallelism)
    return ls.TableManager.load(task, [KEPT], backend, epoch, drop=["dropped", "shared"])


def rows_of(tables: ls.TableManager, name: str = "kept") -> list[dict[str, int]]:
    return sorted((row for batch in tables.keyed(name).scan() for row in batch.to_pylist()), key=str)


def data_files(backend: ls.ParquetBackend) -> set[str]:
    """The tables that have data files."""
    paths = [info.path for info in backend.objects("job").store.list() if info.path.endswith(".parquet")]
    return {path.rpartition("/")[2].partition("-")[0] for path in paths}


def test_the_files_of_a_dropped_table_go_with_the_epochs_that_refer_to_them(
    backend: ls.ParquetBackend,
) -> None:
    tables = load(backend, 1)
    backend.write_checkpoint_metadata("job", 2, [tables.checkpoint(2, 1, None, False)])
    [metadata] = backend.load_operator_metadata("job", 2, "op").values()
    assert [config.name for config in metadata.configs] == ["kept"]
    assert [table.table for table in metadata.tables] == ["kept"]
    assert data_files(backend) == {"kept", "dropped", "shared"}
    assert isinstance(backend.cleanup_checkpoint("job", 2), RetentionPlan)
    assert data_files(backend) == {"kept"}
    assert ls.verify(backend, "job").is_clean
    again = ls.TableManager.load(ls.TaskInfo("job", "op"), [KEPT], backend, 2)
    assert rows_of(again) == ROWS.to_pylist()


def test_until_an_epoch_without_it_is_published_nothing_is_lost(backend: ls.ParquetBackend) -> None:
    load(backend, 1).checkpoint(2, 1, None, False)
    with pytest.raises(ls.IncompatibleStateError, match=r"no longer declared.*found dropped, shared"):
        ls.TableManager.load(ls.TaskInfo("job", "op"), [KEPT], backend, 1)
    before = ls.TableManager.load(ls.TaskInfo("job", "op"), [KEPT, DROPPED, SHARED], backend, 1)
    assert rows_of(before, "dropped") == ROWS.to_pylist()
    assert before.global_keyed("shared").get("a") == 1


def test_a_table_is_dropped_at_another_parallelism_too(backend: ls.ParquetBackend) -> None:
    parts = [load(backend, 1, 3, index) for index in range(3)]
    assert sorted((row for part in parts for row in rows_of(part)), key=str) == ROWS.to_pylist()
    backend.write_checkpoint_metadata("job", 2, [part.checkpoint(2, 1, None, False) for part in parts])
    stored = backend.load_operator_metadata("job", 2, "op").values()
    assert [[table.table for table in metadata.tables] for metadata in stored] == [["kept"]] * 3


def test_a_merge_of_a_dropped_table_is_ignored(backend: ls.ParquetBackend) -> None:
    tables = ls.TableManager.load(ls.TaskInfo("job", "op"), [KEPT, DROPPED, SHARED], backend, 1)
    tables.keyed("dropped").put(ROWS)
    backend.write_checkpoint_metadata("job", 2, [tables.checkpoint(2, 1, None, False)])
    policy = ls.CompactionPolicy(files_min=2)
    merged = backend.compact_operator("job", "op", 2, policy).of_subtask(0)
    assert [merge.table for merge in merged] == ["dropped"]
    without = load(backend, 2)
    without.apply_compacted(merged)
    backend.write_checkpoint_metadata("job", 3, [without.checkpoint(3, 3, None, False)])
    backend.cleanup_checkpoint("job", 5)
    assert ls.verify(backend, "job").is_clean


def test_a_table_that_is_declared_cannot_be_dropped(backend: ls.ParquetBackend) -> None:
    with pytest.raises(ls.InvalidInputError, match="tables to drop are still declared: operator op"):
        ls.TableManager.load(
            ls.TaskInfo("job", "op"), [KEPT, DROPPED], backend, 1, drop=["dropped", "shared"]
        )
