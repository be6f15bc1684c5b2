"""The contract of a sink, for the sinks that write files. PostgreSQL has it with its own tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyarrow import json as arrow_json

import lakestate as ls
from lakestate.row_kind import StreamKind
from lakestate.sinks import Sink
from lakestate.testing.sink_contract import SCHEMA, SinkContract

SMALL = ls.Roll(bytes="1 B", interval=None)
OPEN = ls.Roll(interval=None)


def read_parquet(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]


@pytest.mark.parametrize("roll", [SMALL, OPEN], ids=["a file for each epoch", "a file for many epochs"])
class TestParquetSink(SinkContract):
    @pytest.fixture
    def sink(self, tmp_path: Path, roll: ls.Roll) -> ls.ParquetSink:
        self._folder = tmp_path / "out"
        return ls.ParquetSink(self._folder, roll=roll)

    def read(self, sink: Sink) -> list[dict[str, Any]]:
        return read_parquet(self._folder)


class TestJsonLinesSink(SinkContract):
    @pytest.fixture
    def sink(self, tmp_path: Path) -> ls.JsonLinesSink:
        self._folder = tmp_path / "out"
        return ls.JsonLinesSink(self._folder)

    def read(self, sink: Sink) -> list[dict[str, Any]]:
        files = sorted(self._folder.glob("*.json"))
        return [row for file in files for row in arrow_json.read_json(file).to_pylist()]


class TestIcebergSink(SinkContract):
    @pytest.fixture
    def sink(self, tmp_path: Path) -> ls.IcebergSink:
        return ls.IcebergSink("shop.rows", catalog=str(tmp_path / "warehouse"))

    def read(self, sink: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = sink.load_table().scan().to_arrow().to_pylist()
        return rows


class TestIcebergSinkThatShowsRows(TestIcebergSink):
    @pytest.fixture
    def sink(self, tmp_path: Path) -> ls.IcebergSink:
        roll = ls.Roll(interval=None, visible="0 seconds")
        return ls.IcebergSink("shop.rows", catalog=str(tmp_path / "warehouse"), roll=roll)


class TestIcebergSinkWithAKey(SinkContract):
    @pytest.fixture
    def sink(self, tmp_path: Path) -> Sink:
        self._table = ls.IcebergSink("shop.rows", catalog=str(tmp_path / "warehouse"), key=["id"])
        return self._table.for_stream(StreamKind(), "sink out")

    def read(self, sink: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._table.load_table().scan().to_arrow().to_pylist()
        return rows

    def test_what_is_shown_is_one_line(self, sink: Sink) -> None:
        """It is shown as the user has written it."""
        assert repr(sink) == repr(self._table)


class TestDeltaSink(SinkContract):
    @pytest.fixture
    def sink(self, tmp_path: Path) -> ls.DeltaSink:
        self._folder = tmp_path / "table"
        return ls.DeltaSink(self._folder)

    def read(self, sink: Sink) -> list[dict[str, Any]]:
        if not DeltaTable.is_deltatable(str(self._folder)):
            return []
        found = DeltaTable(str(self._folder))
        files = sorted(found.file_uris())
        return [row for file in files for row in pq.read_table(file).select(SCHEMA.names).to_pylist()]


class TestDeltaSinkThatShowsRows(TestDeltaSink):
    @pytest.fixture
    def sink(self, tmp_path: Path) -> ls.DeltaSink:
        self._folder = tmp_path / "table"
        return ls.DeltaSink(self._folder, roll=ls.Roll(interval=None, visible="0 seconds"))
