"""Copies of open files: no reader of the output sees them, and every reader opens one by its path."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.integration.sinks.test_readers import PARTITIONS, check_readers, large_rows, open_sink
from tests.support.sinks.readers import local_place, s3_place
from tests.support.sinks.sink_job import SinkJob, expected_rows, numbered_rows
from tests.support.sinks.snapshots import readable_rows, snapshot_contents

from lakestate.testing.s3_server import S3Server

ROWS = numbered_rows(150)
FORMATS = pytest.mark.parametrize("extension", ["parquet", "json"])


@PARTITIONS
@FORMATS
def test_readers_of_a_local_directory_do_not_see_copies(
    tmp_path: Path, extension: str, partition_by: Sequence[str]
) -> None:
    sink = replace(open_sink(f"file://{tmp_path}", {}, extension, partition_by), snapshot_open_files=True)
    check_readers(SinkJob(lambda: sink, ROWS), local_place(tmp_path), extension)


def test_readers_of_a_prefix_on_s3_do_not_see_copies(s3_server: S3Server) -> None:
    config = s3_server.store_config(f"snapshots/{uuid.uuid4().hex}")
    plain = open_sink(config.url, dict(config.options), "parquet", ("country",))
    sink = replace(plain, snapshot_open_files=True)
    job = SinkJob(lambda: sink, large_rows, parallelism=1)
    check_readers(job, s3_place(s3_server, config.url), "parquet")


def test_every_committed_row_on_s3_can_be_read_once(s3_server: S3Server) -> None:
    """The first parts of a copy come from the copy before it: an upload cannot be read."""
    config = s3_server.store_config(f"snapshots/{uuid.uuid4().hex}")
    plain = open_sink(config.url, dict(config.options), "parquet", ())
    sink = replace(plain, snapshot_open_files=True)
    job = SinkJob(lambda: sink, large_rows, parallelism=1)
    for epoch in (1, 2, 3):
        job.run_epoch()
        assert readable_rows(sink) == expected_rows(large_rows, epoch, 1)
        [content] = snapshot_contents(sink).values()
        assert len(content) > epoch * (10 << 20), "several parts"
    job.run_epoch(finish_files=True)
    assert readable_rows(sink) == expected_rows(large_rows, 4, 1)
    assert snapshot_contents(sink) == {}


def test_every_reader_opens_a_copy_by_its_path(tmp_path: Path) -> None:
    sink = replace(open_sink(f"file://{tmp_path}", {}, "parquet", ("country",)), snapshot_open_files=True)
    job = SinkJob(lambda: sink, ROWS, parallelism=1)
    for _ in range(2):
        job.run_epoch()
    batch = [*ROWS(1, 0).to_pylist(), *ROWS(2, 0).to_pylist()]
    expected = [row["row"] for row in batch if row["country"] == "DE"]
    [path] = (tmp_path / ".lakestate/snapshots/country=DE").iterdir()
    with duckdb.connect() as connection:
        found = connection.sql(f"SELECT row FROM read_parquet('{path}')").fetchall()
    assert {
        "pyarrow": pq.read_table(path, columns=["row"])["row"].to_pylist(),
        "pandas": pd.read_parquet(path, columns=["row"])["row"].tolist(),
        "polars": pl.read_parquet(path, columns=["row"])["row"].to_list(),
        "duckdb": [row for (row,) in found],
    } == dict.fromkeys(("pyarrow", "pandas", "polars", "duckdb"), expected)
    folder = tmp_path / ".lakestate/snapshots"
    everything = ds.dataset(folder, format="parquet", partitioning="hive", ignore_prefixes=["."])
    rows = sorted(everything.to_table(columns=["row", "country"]).to_pylist(), key=lambda row: row["row"])
    assert rows == [{"row": row["row"], "country": row["country"]} for row in batch]
