"""What a sink's files are after many epochs: how many, how large, where, and whose."""

from __future__ import annotations

import errno
import gzip
import json
import os
import pickle
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from tests.support.sinks.sink_job import JOB, SCHEMA, DictView, SinkJob, expected_rows, numbered_rows

from lakestate.config import RetryPolicy
from lakestate.errors import CorruptionError, InvalidInputError, NotFoundError, StorageUnavailableError
from lakestate.protocol.values import Epoch
from lakestate.sinks import EventTime, JsonLinesSink, ParquetSink, Roll
from lakestate.sinks.files.local_output import LocalOutput
from lakestate.sinks.files.open_files import OpenFiles
from lakestate.sinks.files.sink import FileSink
from lakestate.storage import open_store
from lakestate.testing.stepping import SteppingAmbient

MINUTE_US = 60_000_000
NEVER = Roll(interval=None)


def job_on(root: Path, sink: Callable[[str], FileSink], parallelism: int = 2, count: int = 50) -> SinkJob:
    made = sink(f"file://{root}")
    # Every attempt gets the sink as Spark ships it.
    return SinkJob(lambda: pickle.loads(pickle.dumps(made)), numbered_rows(count), parallelism)


def files(root: Path) -> list[Path]:
    return sorted(file for file in root.rglob("*") if file.is_file() and ".lakestate" not in file.parts)


def rows(root: Path) -> list[int]:
    return sorted(ds.dataset(root, format="parquet", partitioning="hive").to_table()["row"].to_pylist())


def open_paths(job: SinkJob) -> list[str]:
    return [record.path for record in OpenFiles(DictView(job.published.state)).records()]  # type: ignore[arg-type]


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
        sizes = [file.stat().st_size for file in files(tmp_path) if f"-{subtask:05d}-" in file.name]
        assert len(sizes) == -(-sum(sizes) // 2_000_000) == 3, sizes
        assert all(1_900_000 <= size <= 2_300_000 for size in sizes[:-1]), sizes


def test_nothing_is_visible_before_the_commit(tmp_path: Path) -> None:
    job = job_on(tmp_path, lambda url: ParquetSink(url, roll=NEVER))
    job.run_to(3, then_stop=False)
    views = [job.attempt(subtask).finish(then_stop=True) for subtask in range(2)]
    job.publish(views)
    assert files(tmp_path) == []
    job.commit()
    assert rows(tmp_path) == expected_rows(job.rows, 4, 2)


def test_an_epoch_that_touches_no_file_changes_no_state(tmp_path: Path) -> None:
    job = job_on(tmp_path, lambda url: ParquetSink(url, roll=NEVER))
    job.run_epoch()
    before = job.published
    job.rows = lambda epoch, subtask: _no_rows()
    job.run_epoch()
    assert job.published == replace(before, epoch=2)


@pytest.mark.parametrize("parallelism", [[4, 1], [1, 3], [4, 2, 3, 1, 5]])
def test_after_rescaling_exactly_one_subtask_goes_on_with_a_file(
    tmp_path: Path, parallelism: list[int]
) -> None:
    job = job_on(tmp_path, lambda url: ParquetSink(url, partition_by=["country"], roll=NEVER))
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
    job.rows = lambda epoch, subtask: _no_rows()
    job.run_epoch(then_stop=True)
    assert rows(tmp_path) == sorted(expected)
    assert LocalOutput(tmp_path).hidden_files() == []


def test_the_oldest_files_are_finished_when_too_many_are_open(tmp_path: Path) -> None:
    sink = ParquetSink(f"file://{tmp_path}", partition_by=["country"], roll=NEVER, open_files_max=2)
    job = SinkJob(lambda: sink, _one_country_each_epoch, parallelism=1)
    job.run_to(4, then_stop=False)
    assert [path.split("/")[0] for path in open_paths(job)] == ["country=C3", "country=C4"]
    assert [file.parent.name for file in files(tmp_path)] == ["country=C1", "country=C2"]


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


@pytest.mark.parametrize("url", ["file://{}", "memory://long-partition"])
@pytest.mark.parametrize(
    ("country", "found"),
    [("x" * 260, r"a part of more than 255 bytes in country=x+… \(268 bytes\)"), ("é" * 124, "256 bytes")],
)
def test_a_partition_without_a_possible_path_is_refused_before_it_is_published(
    tmp_path: Path, url: str, country: str, found: str
) -> None:
    sink = ParquetSink(url.format(tmp_path), partition_by=["country"])
    job = SinkJob(lambda: sink, lambda *_: _one_row(country), parallelism=1)
    with pytest.raises(InvalidInputError, match=found):
        job.attempt(0).finish()


def test_the_prefix_of_the_store_counts_where_paths_are_bounded() -> None:
    folders = "/".join(["p" * 200] * 4)
    refused = ParquetSink(f"memory://bucket/{folders}", partition_by=["country"])
    job = SinkJob(lambda: refused, lambda *_: _one_row("x" * 200), parallelism=1)
    with pytest.raises(InvalidInputError, match="more than 1024 bytes in country=x"):
        job.attempt(0).finish()
    job.rows = lambda *_: _one_row("x" * 100)
    job.run_epoch(then_stop=True)


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


def test_a_file_with_a_time_after_the_year_9999_can_be_finished(tmp_path: Path) -> None:
    schema = pa.schema([("row", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])

    def far(epoch: int, subtask: int) -> pa.RecordBatch:
        times = pa.array([2**60 if epoch == 1 else 0], schema.field("ts").type)
        return pa.record_batch([pa.array([epoch]), times], schema=schema)

    sink = ParquetSink(f"file://{tmp_path}", partition_by=[EventTime("day=%Y-%m-%d")], roll=NEVER)
    job = SinkJob(lambda: sink, far, 1, event_time="ts", schema=schema)
    job.run_to(3)
    assert [file.parent.name for file in files(tmp_path)] == ["day=1970-01-01", "day=38504-08-17"]
    assert rows(tmp_path) == [1, 2, 3]


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
    assert files(tmp_path) == []
    job.watermark_us = 2 * MINUTE_US + 10_000_000
    job.run_epoch()
    assert [file.parent.name for file in files(tmp_path)] == ["minute=00-01"]
    assert ds.dataset(files(tmp_path)[0]).schema.names == ["row"]
    assert [path.split("/")[0] for path in open_paths(job)] == ["minute=00-02", "minute=00-03"]


def test_old_and_idle_files_are_finished_without_new_rows(tmp_path: Path) -> None:
    roll = Roll(interval=None, inactivity="1 minute")
    job = job_on(tmp_path, lambda url: ParquetSink(url, roll=roll))
    job.run_epoch()
    job.ambient = SteppingAmbient("later", start_ms=1_700_000_000_000 + 120_000)
    job.rows = lambda epoch, subtask: _no_rows()
    job.run_epoch()
    assert rows(tmp_path) == expected_rows(numbered_rows(50), 1, 2)
    assert job.published.state == {}


def test_rows_of_a_new_schema_begin_new_files(tmp_path: Path) -> None:
    job = job_on(tmp_path, lambda url: ParquetSink(url, roll=NEVER), parallelism=1)
    job.run_epoch()
    wider = SCHEMA.append(pa.field("more", pa.int64()))
    narrow = job.rows
    job.schema = wider
    job.rows = lambda epoch, subtask: narrow(epoch, subtask).append_column("more", pa.array(range(50)))
    job.run_epoch()
    assert [ds.dataset(file).schema.names for file in files(tmp_path)] == [SCHEMA.names]
    job.run_epoch(then_stop=True)
    assert sorted(len(ds.dataset(file).schema.names) for file in files(tmp_path)) == [3, 4]
    assert rows(tmp_path) == expected_rows(narrow, 3, 1)


@pytest.mark.parametrize(("compression", "opened"), [("none", open), ("gzip", gzip.open)])
def test_json_lines_go_on_across_epochs(
    tmp_path: Path, compression: str, opened: Callable[[Path], object]
) -> None:
    job = job_on(tmp_path, lambda url: JsonLinesSink(url, roll=NEVER, compression=compression), 1)
    job.run_to(4)
    [file] = files(tmp_path)
    data = gzip.decompress(file.read_bytes()) if compression == "gzip" else file.read_bytes()
    expected = [row for epoch in range(1, 5) for row in job.rows(epoch, 0).to_pylist()]
    assert [json.loads(line) for line in data.splitlines()] == expected


def test_a_disk_that_fills_up_is_reported_and_nothing_is_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_on(tmp_path, lambda url: ParquetSink(url, roll=NEVER, kept_row_bytes=0), 1)
    job.run_epoch()
    written = os.write

    def half_then_full(descriptor: int, data: memoryview) -> int:
        if not Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(tmp_path):
            return written(descriptor, data)
        if len(data) < 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written(descriptor, data[: len(data) // 2])

    attempt = job.attempt(0)
    monkeypatch.setattr(os, "write", half_then_full)
    with pytest.raises(StorageUnavailableError, match="the disk is full"):
        attempt.finish()
    monkeypatch.undo()
    attempt.writer.abandon()
    assert files(tmp_path) == []
    job.run_to(3)
    assert rows(tmp_path) == expected_rows(job.rows, 3, 1)


def test_a_hidden_file_that_lost_bytes_is_reported(tmp_path: Path) -> None:
    job = job_on(tmp_path, lambda url: ParquetSink(url, roll=NEVER, kept_row_bytes=0), 1)
    job.run_epoch()
    [hidden] = LocalOutput(tmp_path).hidden_files()
    (tmp_path / ".lakestate/open" / hidden).write_bytes(b"PAR1")
    with pytest.raises(CorruptionError, match="has lost bytes"):
        job.attempt(0).finish()


def test_an_upload_that_the_store_expired_is_reported_and_nothing_is_visible() -> None:
    store = open_store("memory://expired")
    sink = ParquetSink("memory://expired", roll=NEVER, kept_row_bytes=0, part_bytes=1_000, upload_threads=0)
    job = SinkJob(lambda: sink, numbered_rows(200), 1)
    job.run_epoch()
    [dangling] = list(store.uploads.list_dangling())
    views = [job.attempt(0).finish(then_stop=True)]
    job.publish(views)
    store.uploads.abort(dangling.upload)
    with pytest.raises(NotFoundError, match="no such upload"):
        job.commit()
    assert [info.path for info in store.list() if not info.path.startswith("_")] == []


def test_a_column_that_cannot_be_cast_is_reported(tmp_path: Path) -> None:
    job = job_on(tmp_path, lambda url: ParquetSink(url, roll=NEVER), 1)
    job.rows = lambda epoch, subtask: pa.record_batch({"row": ["x"], "country": ["DE"], "text": ["t"]})
    with pytest.raises(InvalidInputError, match="cannot be cast to what the file holds: row"):
        job.attempt(0).finish()
    assert files(tmp_path) == []


def test_clean_up_leaves_what_others_have_begun(tmp_path: Path) -> None:
    job = job_on(tmp_path, lambda url: ParquetSink(url, roll=NEVER, kept_row_bytes=0), 1)
    job.run_epoch()
    output, kept = LocalOutput(tmp_path), LocalOutput(tmp_path).hidden_files()
    later, other = kept[0].replace("-0000000001-", "-0000000002-"), "part-aaaaaaaaaaaa-0000000001-00000-x"
    dead = kept[0].replace("-00000-", "-00001-")
    for name in (later, other, dead):
        output.create(name).close()
    job.open_sink().committer().clean_up(JOB, Epoch(1), job.published.pre_commits)
    assert output.hidden_files() == sorted([*kept, later, other])


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        (lambda: ParquetSink("file:///x", roll=Roll(past_watermark="1 s")), "not partitioned by event time"),
        (lambda: ParquetSink("file:///x", partition_by=["row", "country", "text"]), "no column is left"),
        (lambda: ParquetSink("file:///x", partition_by=["nowhere"]), "rows do not have: nowhere"),
        (
            lambda: ParquetSink("file:///x", partition_by=[EventTime()]),
            "by event time, but the stream has none",
        ),
        (lambda: ParquetSink("file:///x", compression="lzo"), "unknown compression"),
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


def _no_rows() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=SCHEMA)


def _one_country_each_epoch(epoch: int, subtask: int) -> pa.RecordBatch:
    return pa.record_batch({"row": [epoch], "country": [f"C{epoch}"], "text": ["t"]}, schema=SCHEMA)


def _at_minute(minute: int, schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch({"row": [minute], "ts": pa.array([minute * MINUTE_US + 5])}).cast(schema)


@pytest.mark.parametrize("epochs", [1, 3])
def test_a_bit_that_flips_in_a_hidden_file_is_found_before_readers_see_it(
    tmp_path: Path, epochs: int
) -> None:
    job = job_on(tmp_path, lambda url: ParquetSink(url, roll=NEVER, kept_row_bytes=0), parallelism=1)
    for _ in range(epochs):
        job.run_epoch()
    [hidden] = LocalOutput(tmp_path).hidden_files()
    path = tmp_path / ".lakestate" / "open" / hidden
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    views = [job.attempt(0).finish(then_stop=True)]
    job.publish(views)
    with pytest.raises(CorruptionError, match=r"does not hold what was written to it.*expected CRC-32"):
        job.commit()
    assert files(tmp_path) == []


def test_a_file_that_a_checkpoint_without_a_checksum_left_open_is_finished(tmp_path: Path) -> None:
    job = job_on(tmp_path, lambda url: ParquetSink(url, roll=NEVER, kept_row_bytes=0), parallelism=1)
    job.run_epoch()
    state = {
        key: re.sub(rb',"crc32":[0-9]+', b"", content) if key[1] == -1 else content
        for key, content in job.published.state.items()
    }
    assert state != job.published.state
    job.published = replace(job.published, state=state)
    job.run_epoch(then_stop=True)
    assert rows(tmp_path) == expected_rows(job.rows, 2, 1)


def test_a_sink_gives_up_on_its_store_when_it_is_told_to() -> None:
    nobody = {"endpoint": "http://127.0.0.1:9", "allow_http": "true", "region": "any"}
    keys = {"access_key_id": "none", "secret_access_key": "none"}
    retry = RetryPolicy(deadline_ms=200, attempt_timeout_ms=100)
    sink = ParquetSink("s3://bucket/out", options=nobody | keys, retry=retry)
    start_s = time.monotonic()
    with pytest.raises(StorageUnavailableError, match="out/file"):
        pickle.loads(pickle.dumps(sink)).store.head("file")
    assert time.monotonic() - start_s < RetryPolicy().deadline_ms / 2000


def _one_row(country: str) -> pa.RecordBatch:
    return pa.record_batch({"row": [1], "country": [country], "text": ["t"]}, schema=SCHEMA)
