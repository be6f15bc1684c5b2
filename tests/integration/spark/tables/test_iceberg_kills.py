"""Drivers and workers killed with SIGKILL while they write to Iceberg tables.

One table shows rows of open files, and replaces small ones. The other keeps one row for each key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.spark.test_pipeline_kills import (
    FedJob,
    kill_many_times,
    newest_by_user,
    patient,
)
from tests.support.spark.pipeline_process import WAREHOUSE

from lakestate.sinks.iceberg import IcebergCatalog

pytest.importorskip("pyspark")


class TableJob(FedJob):
    """The same job, with tables as its output."""

    def __init__(self, folder: Path, seed: int) -> None:
        (folder / WAREHOUSE).mkdir()
        super().__init__(folder, seed)

    def check_result(self) -> None:
        """Every snapshot holds rows of the oracle, each at most once; the last one holds all of them."""
        catalog = IcebergCatalog.sqlite(f"file://{self.folder}/{WAREHOUSE}").load()
        table, expected = catalog.load_table("shop.totals"), self.expected_rows()
        assert sorted(_rows(table.scan().to_arrow()), key=str) == expected
        operations = [snapshot.summary.operation.value for snapshot in table.metadata.snapshots]
        assert {*operations} == {"append", "replace"}
        for snapshot in table.metadata.snapshots:
            seen = Counter(_rows(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()))
            assert not seen - Counter(expected), "a row is there twice"
        kept = _rows(catalog.load_table("shop.kept").scan().to_arrow())
        assert sorted(kept, key=str) == newest_by_user(expected)


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[TableJob]:
    made = TableJob(tmp_path, 7)
    yield made
    made.kill_all()


@pytest.mark.full
@patient
def test_no_snapshot_lacks_or_doubles_a_row_after_a_killed_driver_and_killed_workers(job: TableJob) -> None:
    kill_many_times(job, 11, driver_kills=1, worker_kills=2)
