"""Outputs with several jobs: of one name with different checkpoints, and copies. What Spark sees of one."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow.fs import FileSystem, LocalFileSystem
from tests.integration.sinks.test_readers import FORMATS, PARTITIONS, moments, open_sink
from tests.support.sinks.readers import s3_place
from tests.support.sinks.sink_job import SinkJob, expected_rows, numbered_rows
from tests.support.spark.pipelines import read_stream, run_available, write_input

import lakestate as ls
from lakestate.coordinator import upkeep
from lakestate.errors import InvalidInputError
from lakestate.sinks.files.local.output import LocalOutput
from lakestate.sinks.files.sink import FileSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakestate.testing.s3_server import S3Server

DDL = "row bigint, text string"
ROWS_EACH = 12


def large_rows(number: int) -> pa.Table:
    """Six megabytes: every epoch puts a part, and S3 takes none of less than five."""
    random = np.random.default_rng(number)
    rows = range(number * ROWS_EACH, (number + 1) * ROWS_EACH)
    return pa.table({"row": pa.array(rows, pa.int64()), "text": [random.bytes(250_000).hex() for _ in rows]})


class Output:
    """Where several jobs write, and what is there."""

    def __init__(self, url: str, options: dict[str, str], root: str, files: FileSystem) -> None:
        self.url = url
        self._options = options
        self._root = root
        self._files = files

    def sink(self) -> FileSink:
        return ls.ParquetSink(
            self.url,
            options=self._options or None,
            roll=ls.Roll(interval=None),
            kept_row_bytes=0,
            part_bytes=1,
            compression="none",
        )

    def rows(self) -> list[int]:
        found = ds.dataset(self._root, format="parquet", filesystem=self._files)
        return sorted(found.to_table(columns=["row"])["row"].to_pylist())

    def unfinished(self) -> int:
        """How many files are open, of all jobs."""
        output = self.sink().output
        if isinstance(output, LocalOutput):
            return len(output.hidden_files())
        return len(list(output.uploads.list_dangling()))


@pytest.fixture(params=["local", "s3"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Output:
    if request.param == "local":
        root = tmp_path / "out"
        return Output(root.as_uri(), {}, str(root), LocalFileSystem())
    server: S3Server = request.getfixturevalue("s3_server")
    config = server.store_config(f"shared/{uuid.uuid4().hex}")
    place = s3_place(server, config.url)
    return Output(config.url, dict(config.options), place.arrow_root, place.files)


class Job:
    """A pipeline without operators, with a checkpoint of its own."""

    def __init__(self, spark: SparkSession, folder: Path, output: Output, source: Path | None = None) -> None:
        self._spark = spark
        self.folder = folder
        self._output = output
        self._source = source or folder / "in"

    def run(self, number: int | None = None, **options: Any) -> None:
        """Read one more file of input, if one is given, and pause."""
        if number is not None:
            write_input(self._source, number, large_rows(number))
        checkpoint = ls.ParquetBackend(self.folder / "state", cache_dir=self.folder / "cache")
        pipeline = ls.Pipeline("shop", checkpoint, parallelism=1)
        stream = read_stream(self._spark, self._source, DDL)
        pipeline.source(stream).sink("out", self._output.sink())
        run_available(pipeline, **options)


def test_jobs_of_one_name_with_different_checkpoints_do_not_disturb_each_other(
    spark: SparkSession, tmp_path: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "CLEAN_UP_EPOCHS", 1)
    first, second = Job(spark, tmp_path / "first", output), Job(spark, tmp_path / "staging", output)
    first.run(0)
    second.run(1)
    assert output.unfinished() == 2, "each has a file open"
    second.run(2)
    first.run(3)
    second.run(4, finish_files=True)
    assert output.unfinished() == 1
    first.run(5, finish_files=True)
    assert output.unfinished() == 0
    assert output.rows() == list(range(6 * ROWS_EACH))


def test_a_copy_of_a_job_is_refused_at_its_start_until_it_takes_over(
    spark: SparkSession, tmp_path: Path, output: Output
) -> None:
    first = Job(spark, tmp_path / "first", output, tmp_path / "in")
    first.run(0)
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    copy = Job(spark, tmp_path / "copy", output, tmp_path / "in")
    with pytest.raises(InvalidInputError, match="another job that has a copy of this state owns the output"):
        copy.run(1)
    generation = copy.folder / "state" / "shop" / "generation.json"
    assert generation.read_bytes() == (first.folder / "state" / "shop" / "generation.json").read_bytes()
    copy.run(take_over_output=True)
    with pytest.raises(InvalidInputError, match="another job that has a copy of this state owns the output"):
        first.run()
    copy.run(finish_files=True)
    assert output.rows() == list(range(2 * ROWS_EACH))


@PARTITIONS
@pytest.mark.parametrize("extension", FORMATS)
def test_spark_sees_committed_rows_only(
    spark: SparkSession, tmp_path: Path, extension: str, partition_by: Sequence[str]
) -> None:
    job = SinkJob(
        lambda: open_sink(f"file://{tmp_path}", {}, extension, partition_by), numbered_rows(20), parallelism=1
    )
    folder = "country=*/" if partition_by else ""
    found: list[tuple[str, str, list[int]]] = []
    expected: list[tuple[str, str, list[int]]] = []
    for moment, epochs in moments(job):
        rows = expected_rows(job.rows, epochs, job.parallelism)
        for pattern in ("", f"{folder}*.{extension}", f"{folder}part-*", f"{folder}*"):
            read = spark.read.format(extension).load(f"{tmp_path}/{pattern}")
            found.append((moment, pattern, numbers(read)))
            expected.append((moment, pattern, rows))
        everywhere = spark.read.format(extension).option("recursiveFileLookup", True)
        found.append((moment, "recursive", numbers(everywhere.load(str(tmp_path)))))
        expected.append((moment, "recursive", rows))
    assert found == expected


@PARTITIONS
def test_spark_opens_the_copy_of_an_open_file_by_its_path_and_only_so(
    spark: SparkSession, tmp_path: Path, partition_by: Sequence[str]
) -> None:
    sink = replace(open_sink(f"file://{tmp_path}", {}, "parquet", partition_by), snapshot_open_files=True)
    job = SinkJob(lambda: sink, numbered_rows(20), parallelism=1)
    job.run_epoch(finish_files=True)
    job.run_epoch()
    copies = [str(path) for path in (tmp_path / ".lakestate/snapshots").rglob("_snapshot=*")]
    everywhere = spark.read.option("recursiveFileLookup", True)
    visible = expected_rows(job.rows, 1, 1)
    assert {
        "copies": sorted(row for path in copies for row in numbers(spark.read.parquet(path))),
        "directory": numbers(spark.read.parquet(str(tmp_path))),
        "recursive": numbers(everywhere.parquet(str(tmp_path))),
    } == {"copies": job.rows(2, 0)["row"].to_pylist(), "directory": visible, "recursive": visible}


def numbers(rows: DataFrame) -> list[int]:
    return sorted(row["row"] for row in rows.select("row").collect())
