"""Damaged state is detected and named when it is loaded, for every table type. Nothing is half-loaded."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.jobs.table_job import TableJob

import lakestate as ls
from lakestate.tables.contract import Table
from lakestate.tables.manager import TableManager
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs.parquet import decode_run, encode_run

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
TABLES: dict[str, Table] = {
    "keyed": ls.KeyedTable("t", key="k bigint", value="n bigint"),
    "time_key": ls.TimeKeyTable("t", key="k bigint", value="ts timestamp, n bigint", time="ts"),
    "global_keyed": ls.GlobalKeyedTable("t", key=int, value=int),
}


def write(kind: str, manager: TableManager) -> None:
    if kind == "global_keyed":
        for number in range(100):
            manager.global_keyed("t").insert(number, number)
        return
    rows = pa.table({"k": range(100), "n": range(100)})
    if kind == "keyed":
        manager.keyed("t").put(rows)
    else:
        times = pa.array([NOON] * 100, pa.timestamp("us", tz="UTC"))
        manager.time_key("t").insert(rows.append_column("ts", times))


def read(kind: str, manager: TableManager) -> int:
    if kind == "global_keyed":
        return len(manager.global_keyed("t"))
    if kind == "keyed":
        return manager.keyed("t").count()
    return int(manager.time_key("t").rows_between(None, None).num_rows)


@pytest.fixture(params=TABLES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def job(kind: str) -> Iterator[TableJob]:
    job = TableJob([TABLES[kind]])
    write(kind, job.managers[0])
    job.checkpoint()
    yield job
    job.close()


def data_path(job: TableJob) -> str:
    metadata = job.backend.load_operator_metadata("job", 1, "op")[0]
    return metadata.tables[0].files[0].path


def replaced(job: TableJob, path: str, data: bytes) -> None:
    objects = job.backend.objects("job")
    objects.store.put(objects.store_path(path), data)


def stored(job: TableJob, path: str) -> bytes:
    objects = job.backend.objects("job")
    return objects.store.get(objects.store_path(path)).data


def expect_corruption(job: TableJob, kind: str, path: str, what: str) -> None:
    """A host without a cache restores, and the error names the object that is wrong."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:
        backend = ls.ParquetBackend(job.backend._config, cache_dir=empty)
        with pytest.raises(ls.CorruptionError, match=what) as raised:
            read(kind, TableManager.load(job.managers[0].task, job.tables, backend, restore_from=1))
    assert path in str(raised.value)


def test_intact_state_is_loaded(job: TableJob, kind: str) -> None:
    job.restart()
    assert read(kind, job.managers[0]) == 100


def test_a_truncated_file_is_named(job: TableJob, kind: str) -> None:
    path = data_path(job)
    replaced(job, path, stored(job, path)[:-10])
    expect_corruption(job, kind, path, "does not have the size")


@pytest.mark.parametrize("position", [0.0, 0.3, 0.6, 0.999])
def test_a_flipped_bit_is_named(job: TableJob, kind: str, position: float) -> None:
    path = data_path(job)
    data = bytearray(stored(job, path))
    data[int(position * len(data))] ^= 1
    replaced(job, path, bytes(data))
    expect_corruption(job, kind, path, "checksum")


def test_a_missing_file_is_named(job: TableJob, kind: str) -> None:
    path = data_path(job)
    objects = job.backend.objects("job")
    objects.store.delete_many([objects.store_path(path)])
    expect_corruption(job, kind, path, "missing")


def test_damaged_metadata_is_named(job: TableJob, kind: str) -> None:
    entry = job.backend.load_checkpoint_metadata("job", 1).operators[0].subtasks[0]
    data = bytearray(stored(job, entry.metadata.path))
    data[len(data) // 2] ^= 4
    replaced(job, entry.metadata.path, bytes(data))
    expect_corruption(job, kind, entry.metadata.path, "checksum")


def test_a_damaged_manifest_is_named(job: TableJob, kind: str) -> None:
    record = job.backend.objects("job").read_epoch(ls.Epoch(1))
    assert record is not None
    replaced(job, record.manifest.path, b"not a manifest")
    expect_corruption(job, kind, record.manifest.path, "size")


def test_a_file_of_another_table_is_refused_even_if_its_checksum_is_right() -> None:
    config = ls.KeyedTable("other", key="k bigint", value="n bigint").config
    identity = CheckpointParquetMetadata.of(config)
    with pytest.raises(ls.CorruptionError, match=r"another table: a\.parquet; found other \(keyed\)"):
        identity.check(TABLES["keyed"].config, "a.parquet")


def test_a_file_without_our_metadata_is_refused() -> None:
    rows = decode_run(encode_run(pa.table({"a": [1]}), {}), "a.parquet", 1)
    with pytest.raises(ls.CorruptionError, match=r"not a data file of a state table: a\.parquet"):
        CheckpointParquetMetadata.from_key_values(rows.schema.metadata, "a.parquet")


def test_a_data_file_of_a_newer_format_is_refused() -> None:
    stored_values = CheckpointParquetMetadata.of(TABLES["keyed"].config).to_key_values()
    stored_values[b"lakestate.format_version"] = b"2"
    with pytest.raises(ls.IncompatibleStateError, match="format 2; expected at most 1"):
        CheckpointParquetMetadata.from_key_values(stored_values, "a.parquet")


def test_a_damaged_cache_is_rebuilt_without_a_word(job: TableJob, kind: str) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for _ in range(2):
            backend = ls.ParquetBackend(job.backend._config, cache_dir=folder)
            manager = TableManager.load(job.managers[0].task, job.tables, backend, restore_from=1)
            assert read(kind, manager) == 100
            for file in Path(folder).iterdir():
                if file.is_file() and file.stat().st_size > 1000:
                    file.write_bytes(b"x" * file.stat().st_size)


@pytest.mark.parametrize("left", [0, 10, -1])
def test_a_truncated_file_of_which_a_part_is_read_is_named(
    left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakestate.tables.runs.parquet.ROW_GROUP_ROWS", 10)
    job = TableJob([TABLES["keyed"]])
    write("keyed", job.managers[0])
    job.checkpoint()
    path = data_path(job)
    replaced(job, path, stored(job, path)[:left])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:
        job.backend = ls.ParquetBackend(job.backend._config, cache_dir=empty)
        with pytest.raises(ls.CorruptionError, match=f"does not have the size.*{path}"):
            read("keyed", job.opened(job.epoch, parallelism=4)[0])
    job.close()
