"""Data files of a table that are open can be read as copies, and no reader of the table sees them."""

from __future__ import annotations

from pathlib import Path

from tests.support.sinks.iceberg_job import NEVER, Warehouse
from tests.support.sinks.sink_job import expected_rows
from tests.support.sinks.snapshots import rows_of, snapshot_contents


def copied_rows(warehouse: Warehouse) -> list[int]:
    contents = snapshot_contents(warehouse.sink(roll=NEVER).file_sink()).values()
    return sorted(row for content in contents for row in rows_of(content))


def test_rows_that_are_not_in_the_table_yet_are_in_copies(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    job = warehouse.job(roll=NEVER, snapshot_open_files=True)
    for epoch in (1, 2, 3):
        job.run_epoch()
        assert copied_rows(warehouse) == expected_rows(job.rows, epoch, 2)
        assert warehouse.rows() == []
    job.run_epoch(finish_files=True)
    assert copied_rows(warehouse) == []
    assert warehouse.rows() == expected_rows(job.rows, 4, 2)
