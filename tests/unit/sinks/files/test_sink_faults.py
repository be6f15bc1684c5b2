"""What a file sink does about full disks, damaged files, expired uploads and leftovers."""

from __future__ import annotations

import errno
import os
import pickle
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.sinks.sink_files import NEVER, file_sink_job, visible_files, visible_rows
from tests.support.sinks.sink_job import JOB, SinkJob, expected_rows, numbered_rows

from lakestate.config import RetryPolicy
from lakestate.errors import CorruptionError, NotFoundError, StorageUnavailableError
from lakestate.protocol.values import Epoch
from lakestate.sinks import ParquetSink
from lakestate.sinks.files.local.output import LocalOutput
from lakestate.storage import open_store


def test_a_disk_that_fills_up_is_reported_and_nothing_is_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = file_sink_job(tmp_path, lambda url: ParquetSink(url, roll=NEVER, kept_row_bytes=0), 1)
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
    assert visible_files(tmp_path) == []
    job.run_to(3)
    assert visible_rows(tmp_path) == expected_rows(job.rows, 3, 1)


def test_a_hidden_file_that_lost_bytes_is_reported(tmp_path: Path) -> None:
    job = file_sink_job(tmp_path, lambda url: ParquetSink(url, roll=NEVER, kept_row_bytes=0), 1)
    job.run_epoch()
    [hidden] = LocalOutput(tmp_path).hidden_files()
    (tmp_path / ".lakestate/open" / hidden).write_bytes(b"PAR1")
    with pytest.raises(CorruptionError, match="has lost bytes"):
        job.attempt(0).finish()


@pytest.mark.parametrize("epochs", [1, 3])
def test_a_bit_that_flips_in_a_hidden_file_is_found_before_readers_see_it(
    tmp_path: Path, epochs: int
) -> None:
    job = file_sink_job(tmp_path, lambda url: ParquetSink(url, roll=NEVER, kept_row_bytes=0), parallelism=1)
    for _ in range(epochs):
        job.run_epoch()
    [hidden] = LocalOutput(tmp_path).hidden_files()
    path = tmp_path / ".lakestate" / "open" / hidden
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    views = [job.attempt(0).finish(finish_files=True)]
    job.publish(views)
    with pytest.raises(CorruptionError, match=r"does not hold what was written to it.*expected CRC-32"):
        job.commit()
    assert visible_files(tmp_path) == []


def test_a_file_that_a_checkpoint_without_a_checksum_left_open_is_finished(tmp_path: Path) -> None:
    job = file_sink_job(tmp_path, lambda url: ParquetSink(url, roll=NEVER, kept_row_bytes=0), parallelism=1)
    job.run_epoch()
    state = {
        key: re.sub(rb',"crc32":[0-9]+', b"", content) if key[1] == -1 else content
        for key, content in job.published.state.items()
    }
    assert state != job.published.state
    job.published = replace(job.published, state=state)
    job.run_epoch(finish_files=True)
    assert visible_rows(tmp_path) == expected_rows(job.rows, 2, 1)


def test_an_upload_that_the_store_expired_is_reported_and_nothing_is_visible() -> None:
    store = open_store("memory://expired")
    sink = ParquetSink("memory://expired", roll=NEVER, kept_row_bytes=0, part_bytes=1_000, upload_threads=0)
    job = SinkJob(lambda: sink, numbered_rows(200), 1)
    job.run_epoch()
    [dangling] = list(store.uploads.list_dangling())
    views = [job.attempt(0).finish(finish_files=True)]
    job.publish(views)
    store.uploads.abort(dangling.upload)
    with pytest.raises(NotFoundError, match="no such upload"):
        job.commit()
    assert [info.path for info in store.list() if not info.path.startswith("_")] == []


def test_a_sink_gives_up_on_its_store_after_its_deadline() -> None:
    nobody = {"endpoint": "http://127.0.0.1:9", "allow_http": "true", "region": "any"}
    keys = {"access_key_id": "none", "secret_access_key": "none"}
    retry = RetryPolicy(deadline_ms=200, attempt_timeout_ms=100)
    sink = ParquetSink("s3://bucket/out", options=nobody | keys, retry=retry)
    start_s = time.monotonic()
    with pytest.raises(StorageUnavailableError, match="out/file"):
        pickle.loads(pickle.dumps(sink)).store.head("file")
    assert time.monotonic() - start_s < RetryPolicy().deadline_ms / 2000


def test_clean_up_leaves_what_others_have_begun(tmp_path: Path) -> None:
    job = file_sink_job(tmp_path, lambda url: ParquetSink(url, roll=NEVER, kept_row_bytes=0), 1)
    job.run_epoch()
    output, kept = LocalOutput(tmp_path), LocalOutput(tmp_path).hidden_files()
    later, other = kept[0].replace("~0000000001-", "~0000000002-"), "part-aaaaaaaaaaaa-0000000001-00000-x"
    dead = kept[0].replace("-00000-", "-00001-")
    for name in (later, other, dead):
        output.create(name).close()
    job.open_sink().committer().clean_up(JOB, Epoch(1), job.published.pre_commits)
    assert output.hidden_files() == sorted([*kept, later, other])
