"""The outside reader of the benchmark of freshness finds each row once, when its file can be read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.sinks.readable_rows import (
    ListFiles,
    RowWatch,
    files_of_delta,
    files_of_folder,
    files_of_iceberg,
    files_of_spark_sink,
)
from tests.support.sinks.shown_tables import AT_ONCE, ShownDelta, ShownIceberg

SCHEMA = pa.schema(
    [("value", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")), ("country", pa.string())]
)
HOUR_US = 3_600_000_000
DEADLINE_S = 30


def rows(epoch: int, subtask: int) -> pa.RecordBatch:
    """Ten rows that were made an hour ago."""
    numbers = range((epoch * 2 + subtask) * 10, (epoch * 2 + subtask) * 10 + 10)
    made = time.time_ns() // 1000 - HOUR_US
    return pa.record_batch([pa.array(numbers), pa.array([made] * 10), ["DE"] * 10], schema=SCHEMA)


def watch(list_files: ListFiles) -> RowWatch:
    return RowWatch(list_files, "value", "timestamp")


def wait_for(reached: Callable[[], bool]) -> None:
    ends = time.monotonic() + DEADLINE_S
    while not reached():
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("kind", "list_files"),
    [(ShownIceberg, lambda root: files_of_iceberg(root, "shop.orders")), (ShownDelta, files_of_delta)],
    ids=["iceberg", "delta"],
)
def test_rows_of_a_table_are_found_in_small_files_and_not_again_in_large_ones(
    tmp_path: Path, kind: Any, list_files: Callable[[Path], ListFiles]
) -> None:
    table = kind(tmp_path / "table")
    found = watch(list_files(table.root))
    job = table.job(rows, SCHEMA, roll=AT_ONCE)
    job.run_to(2, finish_files=False)
    wait_for(lambda: len(found.late_us) == 40)
    first = dict(found.late_us)
    job.run_to(3)
    found.stop()
    assert len(found.late_us) == 60
    assert {number: found.late_us[number] for number in first} == first
    assert len(found.listed) == 2
    assert {*found.listed} < found.known
    assert min(found.late_ms(range(20, 80))) >= HOUR_US / 1000
    assert found.begun_us is not None
    assert found.begun_us <= time.time_ns() // 1000 - HOUR_US


def test_files_of_a_folder_are_found_unless_they_are_hidden(tmp_path: Path) -> None:
    found = watch(files_of_folder(tmp_path))
    for name in ("a.parquet", "_open-b.parquet", ".lakestate/c.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_batches([rows(len(name), 0)]), tmp_path / name)
    found.stop()
    assert [path.name for path in found.listed] == ["a.parquet"]
    assert len(found.late_us) == 10


def test_files_of_sparks_sink_are_found_when_its_log_names_them(tmp_path: Path) -> None:
    list_files = files_of_spark_sink(tmp_path)
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    assert list_files() is None
    (log / "0").write_text("v1\n" + json.dumps({"path": f"file://{tmp_path}/a.parquet", "size": 1}))
    assert list_files() == [tmp_path / "a.parquet"]
    assert list_files() is None
    (log / "1").write_text("v1\n" + json.dumps({"path": f"file://{tmp_path}/b.parquet", "size": 1}))
    (log / ".1.crc").write_text("")
    assert list_files() == [tmp_path / "a.parquet", tmp_path / "b.parquet"]


def test_a_reader_that_fails_says_so_when_it_is_stopped() -> None:
    def fail() -> list[Path]:
        raise OSError("no route")

    found = watch(fail)
    wait_for(lambda: found.failure is not None)
    with pytest.raises(OSError, match="no route"):
        found.stop()
