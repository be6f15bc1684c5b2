"""Two jobs of one name with different states write to one place: neither touches what the other has open."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.sinks.sink_job import SinkJob, expected_rows, numbered_rows

from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.formats.json_lines.sink import JsonLinesSink
from lakestate.sinks.formats.parquet.sink import ParquetSink
from lakestate.sinks.rolling import Roll
from lakestate.storage import open_store

ROWS = numbered_rows(200)
NO_ROLL = Roll(interval=None)
Sinks = Callable[[], FileSink]


def _parquet(url: str) -> FileSink:
    return ParquetSink(url, roll=NO_ROLL, kept_row_bytes=0, part_bytes=2_000, upload_threads=0)


def _json_lines(url: str) -> FileSink:
    return JsonLinesSink(url, roll=NO_ROLL, part_bytes=2_000, upload_threads=0)


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"file://{tmp_path}" if request.param == "file" else f"memory://{uuid.uuid4().hex}"


@pytest.mark.parametrize("open_sink", [_parquet, _json_lines])
def test_the_clean_up_of_one_job_leaves_the_open_files_of_another_of_its_name(
    url: str, open_sink: Callable[[str], FileSink]
) -> None:
    first = SinkJob(lambda: open_sink(url), ROWS, parallelism=1, state_id="first")
    second = SinkJob(lambda: open_sink(url), ROWS, parallelism=1, state_id="second")
    first.run_to(2, finish_files=False)
    second.run_to(4)
    first.run_to(4)
    assert sorted(_rows(url)) == sorted(2 * expected_rows(ROWS, 4, 1))


def _rows(url: str) -> list[int]:
    store = open_store(url)
    paths = [info.path for info in store.list() if not info.path.startswith(".")]
    tables = [_read(path, store.get(path).data) for path in paths]
    return [row for table in tables for row in table["row"].to_pylist()]


def _read(path: str, data: bytes) -> pa.Table:
    from pyarrow import json, parquet

    read = parquet.read_table if path.endswith(".parquet") else json.read_json
    return read(pa.BufferReader(data))
