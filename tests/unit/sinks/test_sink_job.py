"""What a sink's files are after many epochs: how many, how large, where, and whose."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from tests.support.sinks.sink_files import (
    NEVER,
    file_sink_job,
    no_rows,
    open_paths,
    visible_files,
    visible_rows,
)
from tests.support.sinks.sink_job import SCHEMA, SinkJob, expected_rows, numbered_rows

from lakestate.sinks import EventTime, JsonLinesSink, ParquetSink, Roll
from lakestate.sinks.files.local.output import LocalOutput
from lakestate.testing.stepping import SteppingAmbient

MINUTE_US = 60_000_000


@pytest.mark.slow
def test_short_epochs_do_not_make_small_files(tmp_path: Path) -> None:
    """200 epochs of 5,000 rows on 4 subtasks: as many files as the policy implies, not 800."""
    text = pa.array([f"{number:x}" for number in np.random.default_rng(3).integers(0, 1 << 20, 5_000)])

    def epoch_rows(epoch: int, subtask: int) -> pa.RecordBatch:
        first = (epoch * 100 + subtask) * 5_000
        numbers = pa.array(np.arange(first, first + 5_000))
        return pa.record_batch({"row": numbers, "country": text, "text": text}, schema=SCHEMA)

    roll = Roll(bytes="2MB", interval=None)
    job = SinkJob(lambda: ParquetSink(f"file://{tmp_path}", roll=roll), epoch_rows, parallelism=4)
    job.run_to(200)
    assert ds.dataset(tmp_path, format="parquet").count_rows() == 200 * 5_000 * 4
    for subtask in range(4):
        sizes = [file.stat().st_size for file in visible_files(tmp_path) if f"-{subtask:05d}-" in file.name]
        assert len(sizes) == -(-sum(sizes) // 2_000_000) == 3, sizes
        assert all(1_900_000 <= size <= 2_300_000 for size in sizes[:-1]), sizes


def test_nothing_is_visible_before_the_commit(tmp_path: Path) -> None:
    job = file_sink_job(tmp_path, lambda url: ParquetSink(url, roll=NEVER))
    job.run_to(3, finish_files=False)
    views = [job.attempt(subtask).finish(finish_files=True) for subtask in range(2)]
    job.publish(views)
    assert visible_files(tmp_path) == []
    job.commit()
    assert visible_rows(tmp_path) == expected_rows(job.rows, 4, 2)


def test_an_epoch_that_touches_no_file_changes_no_state(tmp_path: Path) -> None:
    job = file_sink_job(tmp_path, lambda url: ParquetSink(url, roll=NEVER))
    job.run_epoch()
    before = job.published
    job.rows = lambda epoch, subtask: no_rows()
    job.run_epoch()
    assert job.published == replace(before, epoch=2)


@pytest.mark.parametrize("parallelism", [[4, 1], [1, 3], [4, 2, 3, 1, 5]])
def test_after_rescaling_exactly_one_subtask_continues_with_a_file(
    tmp_path: Path, parallelism: list[int]
) -> None:
    job = file_sink_job(tmp_path, lambda url: ParquetSink(url, partition_by=["country"], roll=NEVER))
    expected = []
    for subtasks in parallelism:
        job.parallelism = subtasks
        for _ in range(2):
            epoch = job.published.epoch + 1
            expected += [
                number for each in range(subtasks) for number in job.rows(epoch, each)["row"].to_pylist()
            ]
            job.run_epoch()
    paths = open_paths(job)
    assert len(paths) == len(set(paths)) <= 2 * parallelism[-1]
    job.rows = lambda epoch, subtask: no_rows()
    job.run_epoch(finish_files=True)
    assert visible_rows(tmp_path) == sorted(expected)
    assert LocalOutput(tmp_path).hidden_files() == []


def test_the_oldest_files_are_finished_when_too_many_are_open(tmp_path: Path) -> None:
    sink = ParquetSink(f"file://{tmp_path}", partition_by=["country"], roll=NEVER, open_files_max=2)
    job = SinkJob(lambda: sink, _one_country_each_epoch, parallelism=1)
    job.run_to(4, finish_files=False)
    assert [path.split("/")[0] for path in open_paths(job)] == ["country=C3", "country=C4"]
    assert [file.parent.name for file in visible_files(tmp_path)] == ["country=C1", "country=C2"]


def test_an_epoch_may_finish_more_files_than_can_be_open(tmp_path: Path) -> None:
    def many(epoch: int, subtask: int) -> pa.RecordBatch:
        texts = [f"c{number}" for number in range(60)]
        return pa.record_batch({"row": range(60), "country": texts, "text": texts}, schema=SCHEMA)

    sink = ParquetSink(f"file://{tmp_path}", partition_by=["country"], roll=NEVER, open_files_max=4)
    attempt = SinkJob(lambda: sink, many, parallelism=1).attempt(0)
    before = len(list(Path("/proc/self/fd").iterdir()))
    attempt.writer.write(attempt.batch)
    assert len(list(Path("/proc/self/fd").iterdir())) - before <= 4
    attempt.writer.abandon()


def test_a_file_with_a_time_after_the_year_9999_can_be_finished(tmp_path: Path) -> None:
    schema = pa.schema([("row", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])

    def far(epoch: int, subtask: int) -> pa.RecordBatch:
        times = pa.array([2**60 if epoch == 1 else 0], schema.field("ts").type)
        return pa.record_batch([pa.array([epoch]), times], schema=schema)

    sink = ParquetSink(f"file://{tmp_path}", partition_by=[EventTime("day=%Y-%m-%d")], roll=NEVER)
    job = SinkJob(lambda: sink, far, 1, event_time="ts", schema=schema)
    job.run_to(3)
    assert [file.parent.name for file in visible_files(tmp_path)] == ["day=1970-01-01", "day=38504-08-17"]
    assert visible_rows(tmp_path) == [1, 2, 3]


def test_the_watermark_finishes_the_files_of_a_period_that_is_over(tmp_path: Path) -> None:
    sink = ParquetSink(
        f"file://{tmp_path}",
        partition_by=[EventTime("minute=%H-%M")],
        roll=Roll(interval=None, past_watermark="10 seconds"),
        drop_event_time=True,
    )
    schema = pa.schema([("row", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
    job = SinkJob(
        lambda: sink, lambda epoch, subtask: _at_minute(epoch, schema), 1, event_time="ts", schema=schema
    )
    job.run_epoch()
    job.watermark_us = 2 * MINUTE_US + 9_999_999
    job.run_epoch()
    assert visible_files(tmp_path) == []
    job.watermark_us = 2 * MINUTE_US + 10_000_000
    job.run_epoch()
    assert [file.parent.name for file in visible_files(tmp_path)] == ["minute=00-01"]
    assert ds.dataset(visible_files(tmp_path)[0]).schema.names == ["row"]
    assert [path.split("/")[0] for path in open_paths(job)] == ["minute=00-02", "minute=00-03"]


def test_old_and_idle_files_are_finished_without_new_rows(tmp_path: Path) -> None:
    roll = Roll(interval=None, inactivity="1 minute")
    job = file_sink_job(tmp_path, lambda url: ParquetSink(url, roll=roll))
    job.run_epoch()
    job.ambient = SteppingAmbient("later", start_ms=1_700_000_000_000 + 120_000)
    job.rows = lambda epoch, subtask: no_rows()
    job.run_epoch()
    assert visible_rows(tmp_path) == expected_rows(numbered_rows(50), 1, 2)
    assert job.published.state == {}


def test_rows_of_a_new_schema_begin_new_files(tmp_path: Path) -> None:
    job = file_sink_job(tmp_path, lambda url: ParquetSink(url, roll=NEVER), parallelism=1)
    job.run_epoch()
    wider = SCHEMA.append(pa.field("more", pa.int64()))
    narrow = job.rows
    job.schema = wider
    job.rows = lambda epoch, subtask: narrow(epoch, subtask).append_column("more", pa.array(range(50)))
    job.run_epoch()
    assert [ds.dataset(file).schema.names for file in visible_files(tmp_path)] == [SCHEMA.names]
    job.run_epoch(finish_files=True)
    assert sorted(len(ds.dataset(file).schema.names) for file in visible_files(tmp_path)) == [3, 4]
    assert visible_rows(tmp_path) == expected_rows(narrow, 3, 1)


@pytest.mark.parametrize(("compression", "opened"), [("none", open), ("gzip", gzip.open)])
def test_json_lines_continue_across_epochs(
    tmp_path: Path, compression: str, opened: Callable[[Path], object]
) -> None:
    job = file_sink_job(tmp_path, lambda url: JsonLinesSink(url, roll=NEVER, compression=compression), 1)
    job.run_to(4)
    [file] = visible_files(tmp_path)
    data = gzip.decompress(file.read_bytes()) if compression == "gzip" else file.read_bytes()
    expected = [row for epoch in range(1, 5) for row in job.rows(epoch, 0).to_pylist()]
    assert [json.loads(line) for line in data.splitlines()] == expected


def _one_country_each_epoch(epoch: int, subtask: int) -> pa.RecordBatch:
    return pa.record_batch({"row": [epoch], "country": [f"C{epoch}"], "text": ["t"]}, schema=SCHEMA)


def _at_minute(minute: int, schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch({"row": [minute], "ts": pa.array([minute * MINUTE_US + 5])}).cast(schema)
