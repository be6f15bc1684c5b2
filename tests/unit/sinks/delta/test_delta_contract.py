"""Delta tables in the suite that every sink must pass: appended to, partitioned, and kept by key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import lakestate as ls
from lakestate.testing.sink_contract import SinkContract


class DeltaContract(SinkContract):
    root: Path

    def read(self, sink: Any) -> list[dict[str, Any]]:
        return list(DeltaTable(self.root).to_pyarrow_table(columns=["id", "name"]).to_pylist())


class TestAppends(DeltaContract):
    @pytest.fixture
    def sink(self, tmp_path: Path) -> ls.DeltaSink:
        self.root = tmp_path / "rows"
        return ls.DeltaSink(str(self.root))


class TestAppendsToPartitions(DeltaContract):
    @pytest.fixture
    def sink(self, tmp_path: Path) -> ls.DeltaSink:
        self.root = tmp_path / "rows"
        return ls.DeltaSink(str(self.root), partition_by=["name"])


class TestByKey(DeltaContract):
    @pytest.fixture
    def sink(self, tmp_path: Path) -> ls.DeltaSink:
        self.root = tmp_path / "rows"
        return ls.DeltaSink(str(self.root), key=["id"])
