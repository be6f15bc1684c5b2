"""Delta tables on the S3 server: uploads that outlive epochs, writers that meet, and outside readers."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.support.sinks.delta_job import NEVER, DeltaFolder
from tests.support.sinks.sink_job import SCHEMA, SinkJob, expected_rows, numbered_rows

from lakestate.config import RetryPolicy, StoreConfig
from lakestate.errors import InvalidInputError, StorageUnavailableError
from lakestate.sinks import DeltaSink, Roll
from lakestate.sinks.delta.library import storage_options
from lakestate.testing.sink_harness import SinkHarness

if TYPE_CHECKING:
    from lakestate.testing.s3_server import S3Server

EPOCHS = 4
ROWS = numbered_rows(20)


@pytest.fixture
def s3_table(s3_server: S3Server) -> StoreConfig:
    return s3_server.store_config(f"delta/{uuid.uuid4().hex}")


def job_of(table: StoreConfig, state_id: str = "", rows: Any = ROWS, **settings: Any) -> SinkJob:
    sink = DeltaSink(table.url, options=table.options, **{"roll": Roll(interval="0 seconds"), **settings})
    sink.check(SCHEMA)
    job = SinkJob(lambda: sink, rows, parallelism=1)  # type: ignore[arg-type, return-value]
    job.state_id = state_id
    return job


def rows_of(table: StoreConfig) -> list[int]:
    found = DeltaTable(table.url, storage_options=storage_options(table))
    return sorted(pa.table(found.to_pyarrow_table(columns=["row"]))["row"].to_pylist())


def test_a_table_on_s3_holds_every_row_once(s3_table: StoreConfig) -> None:
    # Text that does not compress, so that files need several parts of the least size.
    rows = numbered_rows(150_000)
    job = job_of(s3_table, rows=rows, roll=NEVER, part_bytes="5MiB", kept_row_bytes=0)
    job.run_to(EPOCHS, finish_files=False)
    store = job.open_sink().file_sink().store
    assert len(list(store.uploads.list_dangling())) == 1
    assert rows_of(s3_table) == []
    job.run_to(EPOCHS + 1)
    job.commit()
    assert rows_of(s3_table) == expected_rows(rows, EPOCHS + 1, 1)
    assert list(store.uploads.list_dangling()) == []


def test_writers_that_meet_on_s3_lose_nothing(s3_table: StoreConfig) -> None:
    jobs = [job_of(s3_table, state_id, commit_attempts_max=200) for state_id in ("a1", "b2", "c3")]
    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(job.run_to, 6) for job in jobs]:
            done.result()
    assert rows_of(s3_table) == sorted(len(jobs) * expected_rows(ROWS, 6, 1))
    assert [job.failures for job in jobs] == [0, 0, 0]


def test_merges_that_meet_on_s3_lose_nothing(s3_table: StoreConfig) -> None:
    schema = pa.schema([("user", pa.string()), ("n", pa.int64())])
    sink = DeltaSink(s3_table.url, options=s3_table.options, key=["user"], commit_attempts_max=200)
    jobs = {name: SinkHarness(replace(sink), schema, job_id=name) for name in ("ada", "bob")}

    def run(name: str) -> None:
        for epoch in range(1, 6):
            rows = [{"user": f"{name}-{number}", "n": epoch} for number in range(0, 10, epoch)]
            jobs[name].epoch(rows)

    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(run, name) for name in jobs]:
            done.result()
    table = DeltaTable(s3_table.url, storage_options=storage_options(s3_table))
    found = sorted((row["user"], row["n"]) for row in table.to_pyarrow_table().to_pylist())
    newest = {number: epoch for epoch in range(1, 6) for number in range(0, 10, epoch)}
    assert found == sorted((f"{name}-{number}", n) for name in jobs for number, n in newest.items())


def test_a_table_that_may_not_be_read_is_named_before_the_first_epoch(s3_table: StoreConfig) -> None:
    wrong = {**s3_table.options, "secret_access_key": "wrong-secret"}
    with pytest.raises(InvalidInputError, match="access to the Delta table is refused") as raised:
        DeltaSink(s3_table.url, options=wrong).check(SCHEMA)
    assert raised.value.object_name == s3_table.url
    assert "wrong-secret" not in str(raised.value)


def test_a_store_that_does_not_answer_is_named_in_time(s3_table: StoreConfig) -> None:
    gone = {**s3_table.options, "endpoint": "http://127.0.0.1:9"}
    sink = DeltaSink(s3_table.url, options=gone, retry=RetryPolicy(deadline_ms=300))
    with pytest.raises(StorageUnavailableError, match="the Delta table cannot be reached"):
        sink.check(SCHEMA)


def by_deltalake(root: Path) -> list[int]:
    return DeltaTable(root).to_pyarrow_table()["row"].to_pylist()


def by_polars(root: Path) -> list[int]:
    return pl.read_delta(str(root))["row"].to_list()


def by_duckdb(root: Path) -> list[int]:
    """Through the files that the log names: DuckDB's own reader is an extension that has to be downloaded."""
    files = DeltaTable(root).file_uris()
    return [row for (row,) in duckdb.read_parquet(files, hive_partitioning=True).select("row").fetchall()]


@pytest.mark.parametrize("read", [by_deltalake, by_polars, by_duckdb])
def test_readers_see_every_row_once(tmp_path: Path, read: Callable[[Path], list[int]]) -> None:
    folder = DeltaFolder(tmp_path / "orders")
    folder.job(ROWS, partition_by=["country"]).run_to(3)
    assert sorted(read(folder.root)) == expected_rows(ROWS, 3, 2)


def test_polars_and_deltalake_agree_about_partitions(tmp_path: Path) -> None:
    folder = DeltaFolder(tmp_path / "orders")
    towns = ["Köln", "a/b=c d", "100%", None, "x+y"]
    days = pa.array([0, 19_000, None, 1, 2], pa.int32()).cast(pa.date32())
    moments = pa.array([0, 1_700_000_000_500_000, None, 1, 2], pa.timestamp("us", "UTC"))
    rows = pa.record_batch({"n": [1, 2, 3, 4, 5], "town": towns, "day": days, "at": moments})
    job = folder.job(
        lambda epoch, subtask: rows if subtask == 0 else rows.slice(0, 0),
        rows.schema,
        partition_by=["town", "day", "at"],
    )
    job.run_to(1)
    found = sorted(folder.all_rows(), key=lambda row: row["n"])
    assert found == rows.to_pylist()
    read = pl.read_delta(str(folder.root)).select("n", "town", "day", "at").sort("n")
    assert read.to_arrow().to_pylist() == rows.to_pylist()
