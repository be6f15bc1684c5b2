"""Rows and settings that a sink refuses before anything is published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.sinks.sink_files import NEVER, file_sink_job, one_row, visible_files
from tests.support.sinks.sink_job import SCHEMA, SinkJob

from lakestate.errors import InvalidInputError
from lakestate.sinks import EventTime, JsonLinesSink, ParquetSink, Roll
from lakestate.sinks.files.sink import FileSink


@pytest.mark.parametrize("url", ["file://{}", "memory://long-partition"])
@pytest.mark.parametrize(
    ("country", "found"),
    [("x" * 260, r"a part of more than 255 bytes in country=x+… \(268 bytes\)"), ("é" * 124, "256 bytes")],
)
def test_a_partition_without_a_possible_path_is_refused_before_it_is_published(
    tmp_path: Path, url: str, country: str, found: str
) -> None:
    sink = ParquetSink(url.format(tmp_path), partition_by=["country"])
    job = SinkJob(lambda: sink, lambda *_: one_row(country), parallelism=1)
    with pytest.raises(InvalidInputError, match=found):
        job.attempt(0).finish()


@pytest.mark.parametrize("moment", ["begin", "continue", "finish"])
def test_a_partition_that_became_a_link_is_refused_before_it_is_published(
    tmp_path: Path, moment: str
) -> None:
    root, partition, outside = tmp_path / "out", tmp_path / "out" / "country=DE", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    sink = ParquetSink(f"file://{root}", partition_by=["country"], roll=NEVER)
    job = SinkJob(lambda: sink, lambda *_: one_row("DE"), parallelism=1)
    if moment == "continue":
        job.run_epoch()
    attempt = job.attempt(0)
    if moment == "finish":
        attempt.writer.write(attempt.batch)
    partition.symlink_to(outside)
    with pytest.raises(InvalidInputError) as refused:
        attempt.finish(finish_files=True)
    assert refused.value.object_name == str(partition)
    partition.unlink()
    job.run_epoch(finish_files=True)
    assert [file.parent for file in visible_files(root)] == [partition]
    assert list(outside.iterdir()) == []


def test_the_prefix_of_the_store_counts_where_paths_are_bounded() -> None:
    folders = "/".join(["p" * 200] * 4)
    refused = ParquetSink(f"memory://bucket/{folders}", partition_by=["country"])
    job = SinkJob(lambda: refused, lambda *_: one_row("x" * 200), parallelism=1)
    with pytest.raises(InvalidInputError, match="more than 1024 bytes in country=x"):
        job.attempt(0).finish()
    job.rows = lambda *_: one_row("x" * 100)
    job.run_epoch(finish_files=True)


def test_text_that_is_not_utf8_is_refused_before_it_is_published(tmp_path: Path) -> None:
    broken = pa.array([b"\xff\xfe"]).view(pa.string())
    row = pa.record_batch([pa.array([1]), pa.array(["DE"]), broken], schema=SCHEMA)
    sink = ParquetSink(f"file://{tmp_path}")
    job = SinkJob(lambda: sink, lambda *_: row, parallelism=1)
    with pytest.raises(InvalidInputError, match="found text: Invalid UTF8"):
        job.attempt(0).finish()


def test_json_of_a_time_after_the_year_9999_is_refused_by_name(tmp_path: Path) -> None:
    schema = pa.schema([("ts", pa.timestamp("us", "UTC"))])
    row = pa.record_batch([pa.array([2**62], schema.field("ts").type)], schema=schema)
    job = SinkJob(lambda: JsonLinesSink(f"file://{tmp_path}"), lambda *_: row, 1, schema=schema)
    with pytest.raises(InvalidInputError, match=r"written as JSON.*years 1 to 9999"):
        job.attempt(0).finish()


def test_a_column_that_cannot_be_cast_is_reported(tmp_path: Path) -> None:
    job = file_sink_job(tmp_path, lambda url: ParquetSink(url, roll=NEVER), 1)
    job.rows = lambda epoch, subtask: pa.record_batch({"row": ["x"], "country": ["DE"], "text": ["t"]})
    with pytest.raises(InvalidInputError, match="write to the file: a column has another type: row"):
        job.attempt(0).finish()
    assert visible_files(tmp_path) == []


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        (
            lambda: ParquetSink("file:///x", roll=Roll(past_watermark="1 s")),
            "needs files that are partitioned by event time",
        ),
        (lambda: ParquetSink("file:///x", partition_by=["row", "country", "text"]), "no column is left"),
        (lambda: ParquetSink("file:///x", partition_by=["nowhere"]), "rows do not have: nowhere"),
        (
            lambda: ParquetSink("file:///x", partition_by=[EventTime()]),
            "by event time, but the stream has none",
        ),
        (lambda: ParquetSink("file:///x", compression="lzo"), "unknown compression"),
        (lambda: ParquetSink("file:///x", compression="lz4"), "deprecated codec.*use lz4_raw"),
        (lambda: JsonLinesSink("file:///x", compression="lz4"), "unknown compression"),
        (lambda: ParquetSink("file:///x", open_files_max=0), "not settings of a file sink"),
        (lambda: ParquetSink("s3://key:secret@x/y"), "must not carry credentials"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_starts(
    sink: Callable[[], FileSink], expected: str
) -> None:
    with pytest.raises(InvalidInputError, match=expected):
        sink().check(SCHEMA)


@pytest.mark.parametrize(("codec", "level"), [("snappy", 3), ("none", 1), ("gzip", 99), ("gzip", -5)])
def test_a_level_that_its_codec_does_not_take_is_refused_at_once(codec: str, level: int) -> None:
    with pytest.raises(InvalidInputError, match=f"not a compression level of this codec: {codec}"):
        ParquetSink("file:///x", compression=codec, compression_level=level)


def test_columns_that_a_format_cannot_hold_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="cannot be written to Parquet: gap"):
        ParquetSink("file:///x").check(pa.schema([("gap", pa.month_day_nano_interval())]))
    with pytest.raises(InvalidInputError, match="cannot be written as JSON: counts"):
        JsonLinesSink("file:///x").check(pa.schema([("counts", pa.map_(pa.int64(), pa.string()))]))
