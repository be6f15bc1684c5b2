"""Rescaling reads any epoch at any parallelism, rewrites nothing, and reads only what it needs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from tests.support.jobs.table_job import EAGER, TableJob

import lakestate as ls
from lakestate.protocol.values import TaskInfo
from lakestate.tables.contract import CompactedFiles, swap_in
from lakestate.tables.hashing.routing import routing_keys, subtasks_of
from lakestate.tables.manager import TableManager
from lakestate.testing import FaultyStore

TABLE = ls.KeyedTable("t", key="k bigint", value="n bigint")


@pytest.fixture
def job() -> Iterator[TableJob]:
    job = TableJob([TABLE])
    yield job
    job.close()


def put(job: TableJob, keys: np.ndarray, value: int) -> None:
    owners = subtasks_of(routing_keys([pa.array(keys)]), job.parallelism)
    for index, manager in enumerate(job.managers):
        mine = keys[owners == index]
        manager.keyed("t").put(pa.table({"k": mine, "n": np.full(len(mine), value)}))


def contents(managers: list[TableManager]) -> dict[int, int]:
    batches = [batch for manager in managers for batch in manager.keyed("t").scan()]
    rows = [(k, n) for batch in batches for k, n in zip(*batch.to_pydict().values(), strict=True)]
    assert len(rows) == len(dict(rows))
    return dict(rows)


@pytest.mark.parametrize("chain", [(1, 7), (8, 3), (2, 3, 5, 1), (16, 1, 16), (5, 5)])
def test_state_survives_any_chain_of_parallelisms(job: TableJob, chain: tuple[int, ...]) -> None:
    model: dict[int, int] = {}
    for step, parallelism in enumerate(chain):
        job.restart(parallelism)
        assert contents(job.managers) == model
        keys = np.arange(step * 50, step * 50 + 200)
        put(job, keys, step)
        model |= dict.fromkeys(keys.tolist(), step)
        job.checkpoint()
    job.restart(3)
    assert contents(job.managers) == model


def test_rescaling_writes_no_data_file(job: TableJob) -> None:
    put(job, np.arange(1000), 1)
    job.checkpoint()
    job.restart(5)
    epoch = job.checkpoint()
    assert job.backend.load_checkpoint_metadata("job", epoch).summary.bytes_written == 0
    files = {
        file.path
        for metadata in job.backend.load_operator_metadata("job", epoch, "op").values()
        for file in metadata.tables[0].files
    }
    assert len(files) == 1


def test_only_overlapping_row_groups_are_fetched(job: TableJob) -> None:
    keys = np.arange(700_000)
    put(job, keys, 1)
    job.checkpoint()
    file = job.backend.load_operator_metadata("job", 1, "op")[0].tables[0].files[0]
    fetched: list[int] = []
    job.backend.__dict__["_store"] = _CountingStore(job.backend.objects("job").store, fetched)
    manager = TableManager.load(TaskInfo("job", "op", 3, 7), [TABLE], _uncached(job), restore_from=1)
    expected = int((subtasks_of(routing_keys([pa.array(keys)]), 7) == 3).sum())
    assert manager.keyed("t").count() == expected
    assert len(file.blocks) == 6
    assert sum(fetched) < 0.45 * file.size_bytes


def test_a_damaged_row_group_is_named_when_it_is_fetched_alone(job: TableJob) -> None:
    put(job, np.arange(400_000), 1)
    job.checkpoint()
    file = job.backend.load_operator_metadata("job", 1, "op")[0].tables[0].files[0]
    objects = job.backend.objects("job")
    data = bytearray(objects.store.get(objects.store_path(file.path)).data)
    data[file.blocks[0].start + 1000] ^= 1
    objects.store.put(objects.store_path(file.path), bytes(data))
    first, last = (
        TableManager.load(TaskInfo("job", "op", index, 8), [TABLE], _uncached(job), restore_from=1)
        for index in (0, 7)
    )
    with pytest.raises(ls.CorruptionError, match="part of a data file") as raised:
        first.keyed("t").count()
    assert file.path in str(raised.value)
    assert last.keyed("t").count() > 0


def test_a_merge_of_one_half_does_not_touch_the_other_half_of_a_shared_file(job: TableJob) -> None:
    keys = np.arange(100)
    put(job, keys, 1)
    job.checkpoint()
    job.restart(2)
    for value in (2, 3):
        put(job, keys[:50], value)
        job.checkpoint()
    job.compact(EAGER)
    merges = job.compacted
    assert merges is not None
    only_first = {0: merges.of_subtask(0)}
    job.compacted = type(merges)(merges.operator_id, merges.epoch, only_first)
    job.restart(2)
    job.checkpoint()
    job.restart(1)
    assert contents(job.managers) == {key: 3 if key < 50 else 1 for key in keys.tolist()}


def test_a_merge_is_dropped_when_other_keys_of_its_files_count_now(job: TableJob) -> None:
    put(job, np.arange(100), 1)
    job.checkpoint()
    whole = job.backend.load_operator_metadata("job", 1, "op")[0].tables[0]
    halves = [whole.files[0].clipped_to(TaskInfo("job", "op", index, 2).key_range) for index in (0, 1)]
    assert None not in halves
    merge = CompactedFiles("t", replaced=(halves[1],), merged=())  # type: ignore[arg-type]
    rescaled = type(whole)("t", whole.table_type, tuple(halves))  # type: ignore[arg-type]
    assert swap_in(rescaled, merge).files == (halves[0],)
    assert swap_in(whole, merge) == whole


class _CountingStore(FaultyStore):
    """Counts the bytes of data files that are fetched."""

    def __init__(self, inner: object, fetched: list[int]) -> None:
        super().__init__(inner)  # type: ignore[arg-type]
        self._fetched = fetched

    def get_ranges(self, path: str, spans: object) -> list[bytes]:
        pieces = super().get_ranges(path, spans)  # type: ignore[arg-type]
        self._fetched.extend(len(piece) for piece in pieces)
        return pieces

    def get(self, path: str) -> object:  # type: ignore[override]
        found = super().get(path)
        if path.endswith(".parquet"):
            self._fetched.append(len(found.data))
        return found


def _uncached(job: TableJob) -> ls.ParquetBackend:
    backend = ls.ParquetBackend(job.backend._config)
    backend.__dict__["cache"] = None
    backend.__dict__["_store"] = job.backend.objects("job").store
    return backend
