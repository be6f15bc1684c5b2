"""A job whose open files have copies goes back: rows that are given up are in no copy any more."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.sinks.event_job import JOB, SINK
from tests.support.sinks.snapshots import snapshot_contents
from tests.unit.repair.test_going_back import URLS, BackAndForth

import lakestate as ls
from lakestate.sinks.files import uploads


def copied(job: BackAndForth) -> Counter[int]:
    assert isinstance(job.sink, ls.ParquetSink)
    contents = snapshot_contents(job.sink).values()
    return Counter(n for each in contents for n in pq.read_table(pa.BufferReader(each))["n"].to_pylist())


@pytest.mark.parametrize("scheme", URLS)
def test_every_row_that_counts_can_be_read_once_after_going_back(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "INLINE_BYTES_MAX", 0)
    url = f"file://{tmp_path}/out" if scheme == "file" else f"memory://{uuid.uuid4().hex}"
    sink = ls.ParquetSink(url, part_bytes=200, kept_row_bytes=0, upload_threads=0, snapshot_open_files=True)
    job = BackAndForth(sink, parallelism=2)
    for first in (0, 2, 4, 6):
        job.write(first)
    assert copied(job) == Counter(range(8))
    job.back(2)
    # The files are open without a copy, until the next epoch.
    assert copied(job) == Counter()
    assert ls.verify(job.backend, JOB, sinks={SINK: sink}).is_clean
    job.write(6)
    assert copied(job) + job.visible() == Counter([0, 1, 2, 3, 6, 7])
    job.write(4)
    assert copied(job) + job.visible() == Counter(range(8))
    job.finish()
    assert (copied(job), job.visible()) == (Counter(), Counter(range(8)))
    assert ls.verify(job.backend, JOB, sinks={SINK: sink}).is_clean
