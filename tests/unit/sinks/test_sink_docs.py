from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.repository import ROOT
from tests.support.sinks.event_job import EventJob, rows_of
from tests.support.sinks.sink_job import SinkJob, numbered_rows

from lakestate.observability.file_events import FileEvent
from lakestate.observability.listeners import tell_files
from lakestate.sinks import ParquetSink, Roll
from lakestate.sinks.formats.json_lines.format import JsonLinesFormat
from lakestate.sinks.formats.parquet.format import ParquetFormat
from lakestate.sinks.rolling import RollReason

PAGE = ROOT / "docs" / "sinks.md"


def test_the_sink_that_the_page_shows_can_be_made_and_checked() -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    names: dict[str, object] = {}
    exec(code, names)
    sink = names["out"]
    assert isinstance(sink, ParquetSink)
    schema = pa.schema([("country", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    sink.check(schema, "ts")
    assert sink.file_schema(schema, "ts").names == ["ts", "n"]


def test_the_listener_that_the_page_shows_knows_what_readers_see(tmp_path: Path) -> None:
    section = PAGE.read_text().split("## Events\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    job = EventJob(ParquetSink(f"file://{tmp_path}", roll=Roll(interval=None)))
    for _ in range(2):
        job.epoch(rows_of("DE", "FR"))
        job.stop()
    tell_files([names["visible"]], job.told)
    assert names["visible"].rows == {file.name: 2 for file in tmp_path.glob("*.parquet")}


def test_the_query_that_the_page_shows_reads_every_row_once(tmp_path: Path) -> None:
    section = PAGE.read_text().split("## Read files that are open\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    settings = {"partition_by": ["country"], "roll": Roll(interval=None), "snapshot_open_files": True}
    job = SinkJob(lambda: ParquetSink(f"file://{tmp_path}", **settings), numbered_rows(40))
    job.run_epoch(finish_files=True)
    job.run_epoch()
    for _ in range(2):
        job.run_epoch()
        names: dict[str, Any] = {}
        exec(code.replace("/data/out", str(tmp_path)), names)
        subtasks = [(epoch, subtask) for epoch in range(1, job.published.epoch + 1) for subtask in range(2)]
        expected = [row for each in subtasks for row in job.rows(*each).to_pylist()]
        assert sorted(names["rows"]) == sorted((row["row"], row["country"]) for row in expected)


def test_the_page_names_every_field_and_reason_of_an_event() -> None:
    section = PAGE.read_text().split("## Events\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `.*$", section, re.MULTILINE)
    named = {name for row in rows for name in _first_cell(row)}
    derived = {"finished_epoch", "committed_epoch"}
    reasons = {reason.value for reason in RollReason}
    assert named == {each.name for each in fields(FileEvent)} | derived | reasons


def test_the_page_names_every_option_of_the_data_source() -> None:
    pytest.importorskip("pyspark")
    from lakestate.spark.data_source.options import known_options

    section = PAGE.read_text().split("## Directly from Spark\n")[1].split("\n## ")[0]
    named = {name for row in re.findall(r"^\| `.*$", section, re.MULTILINE) for name in _first_cell(row)}
    assert named - {"store.…"} == {*known_options(ParquetFormat), *known_options(JsonLinesFormat)}


def _first_cell(row: str) -> list[str]:
    return re.findall(r"`([^`]+)`", row.split("|")[1])
