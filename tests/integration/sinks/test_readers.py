"""What readers see of an output during a run: the committed rows and nothing else, whoever reads and how."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.support.sinks.readers import Place, local_place, readers, s3_place
from tests.support.sinks.sink_job import SCHEMA, SinkJob, expected_rows, numbered_rows

from lakestate.sinks import JsonLinesSink, ParquetSink, Roll
from lakestate.sinks.files.sink import FileSink
from lakestate.testing.s3_server import S3Server

FORMATS = ("parquet", "json")
NEVER = Roll(interval=None)
PARTITIONS = pytest.mark.parametrize("partition_by", [(), ("country",)], ids=["flat", "partitioned"])


def large_rows(epoch: int, subtask: int) -> pa.RecordBatch:
    """Six megabytes for each country: S3 takes no parts of less than five, so that every epoch puts one."""
    random = np.random.default_rng([epoch, subtask])
    numbers = range(epoch * 100, epoch * 100 + 12)
    texts = [random.bytes(500_000).hex() for _ in numbers]
    countries = [("DE", "FR")[number % 2] for number in numbers]
    return pa.record_batch({"row": numbers, "country": countries, "text": texts}, schema=SCHEMA)


def open_sink(url: str, options: dict[str, str], extension: str, partition_by: Sequence[str]) -> FileSink:
    if extension == "json":
        return JsonLinesSink(url, options=options, roll=NEVER, partition_by=partition_by, part_bytes=1)
    return ParquetSink(
        url,
        options=options,
        roll=NEVER,
        partition_by=partition_by,
        part_bytes=1,
        kept_row_bytes=0,
        compression="none",
    )


def moments(job: SinkJob) -> Iterator[tuple[str, int]]:
    """What is unfinished at each moment of a run, and how many epochs are committed by then."""
    job.run_epoch(finish_files=True)
    yield "all files are finished", 1
    job.run_to(3, finish_files=False)
    yield "files are open for two epochs", 1
    for subtask in range(job.parallelism):
        job.attempt(subtask).finish(finish_files=True)
    yield "an attempt that does not count has finished its files", 1
    views = [job.attempt(subtask).finish(finish_files=True) for subtask in range(job.parallelism)]
    job.publish(views)
    yield "files are finished, and their epoch is not committed", 1
    job.commit()
    yield "files are committed, and nothing is cleaned up", 4
    job.clean_up()
    yield "everything is cleaned up", 4


def check_readers(job: SinkJob, place: Place, extension: str) -> None:
    for moment, epochs in moments(job):
        expected = expected_rows(job.rows, epochs, job.parallelism)
        for name, read in readers(extension).items():
            assert (moment, name, sorted(read(place))) == (moment, name, expected)


@PARTITIONS
@pytest.mark.parametrize("extension", FORMATS)
def test_readers_of_a_local_directory_see_committed_rows_only(
    tmp_path: Path, extension: str, partition_by: Sequence[str]
) -> None:
    job = SinkJob(lambda: open_sink(f"file://{tmp_path}", {}, extension, partition_by), numbered_rows(150))
    check_readers(job, local_place(tmp_path), extension)


@pytest.mark.parametrize(
    ("extension", "partition_by"),
    [("parquet", ()), ("parquet", ("country",)), pytest.param("json", (), marks=pytest.mark.full)],
)
def test_readers_of_a_prefix_on_s3_see_committed_rows_only(
    s3_server: S3Server, extension: str, partition_by: Sequence[str]
) -> None:
    config = s3_server.store_config(f"readers/{uuid.uuid4().hex}")
    options = dict(config.options)
    job = SinkJob(lambda: open_sink(config.url, options, extension, partition_by), large_rows, parallelism=1)
    check_readers(job, s3_place(s3_server, config.url), extension)
