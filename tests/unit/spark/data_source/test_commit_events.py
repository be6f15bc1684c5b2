"""What the data source tells of its files: in the log of the process that commits, or printed there."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from tests.support.sinks.sink_query import Rows, SinkQuery

import lakestate as ls
from lakestate.observability.file_events import FileEvent

SCHEMA = pa.schema([("n", pa.int64())])


def rows(*numbers: int) -> Rows:
    return [pa.record_batch({"n": numbers}, schema=SCHEMA)]


def test_every_file_is_logged_as_a_file_of_the_one_sink(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = SinkQuery(tmp_path, SCHEMA, {"rollInterval": "none"})
    with caplog.at_level(logging.INFO, logger="lakestate.files"):
        query.run(0, [rows(1, 2), rows(3)])
        query.run(1, [rows(4), rows()])
        names = ls.finish_files(**query.options)
    events = [record.args[0] for record in caplog.records if record.name == "lakestate.files"]
    told = [(e.kind.value, e.sink_id, e.rows, e.epoch) for e in events if isinstance(e, FileEvent)]
    assert told[:2] == [("opened", "out", 0, 1), ("opened", "out", 0, 1)]
    assert sorted(told[2:]) == sorted(
        (kind, "out", count, 3) for kind in ("rolled", "finished", "committed") for count in (3, 1)
    )
    assert sorted({event.path for event in events if isinstance(event, FileEvent)}) == names


def test_files_are_printed_where_logging_cannot_be_set_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = SinkQuery(tmp_path, SCHEMA, {"rollInterval": "0 seconds", "logFiles": "true"})
    query.run(0, [rows(1, 2)])
    printed = capsys.readouterr().err.splitlines()
    kinds = [line.split()[3] for line in printed if line.startswith("lakestate: sink-")]
    assert kinds == ["opened", "rolled", "finished", "committed"]
