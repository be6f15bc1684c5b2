"""Small files in an Iceberg table: what its snapshots and manifests say, and what cannot be shown.

What holds in all tables is in `test_visible_tables.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from tests.support.repository import ROOT
from tests.support.sinks.shown_tables import AT_ONCE, Commit, HandClock, Instead, ShownIceberg
from tests.support.sinks.sink_job import SCHEMA, expected_rows, numbered_rows

from lakestate.errors import InvalidInputError
from lakestate.sinks import ParquetSink

ROWS = numbered_rows(20)


@pytest.fixture
def warehouse(tmp_path: Path) -> ShownIceberg:
    return ShownIceberg(tmp_path / "warehouse")


@pytest.fixture
def on_commit(warehouse: ShownIceberg, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Instead | None]]:
    instead: list[Instead | None] = []
    warehouse.act_instead_of_commits(instead, monkeypatch)
    yield instead
    assert not instead, "the catalog was to be asked more often"


def test_what_a_table_says_of_its_files_and_rows_is_right_after_a_replacement(
    warehouse: ShownIceberg,
) -> None:
    warehouse.job(ROWS, roll=AT_ONCE, partition_by=["country"]).run_to(3)
    table = warehouse.table()
    summary = table.current_snapshot().summary.additional_properties
    files = [task.file for task in table.scan().plan_files()]
    assert (summary["total-data-files"], summary["total-records"]) == (str(len(files)), "120")
    assert summary["total-files-size"] == str(sum(file.file_size_in_bytes for file in files))
    assert (summary["added-records"], summary["deleted-records"]) == ("120", "120")


def test_expired_snapshots_do_not_keep_small_files_from_being_replaced(warehouse: ShownIceberg) -> None:
    job = warehouse.job(ROWS, roll=AT_ONCE)
    job.run_to(3, finish_files=False)
    ids = [each.snapshot_id for each in warehouse.table().metadata.snapshots][:-1]
    for snapshot_id in ids:
        warehouse.table().maintenance.expire_snapshots().by_id(snapshot_id).commit()
    job.run_to(4)
    assert warehouse.rows() == expected_rows(ROWS, 4, 2)
    assert warehouse.file_count() == 2


def test_a_try_that_failed_leaves_no_manifests(
    warehouse: ShownIceberg, on_commit: list[Instead | None]
) -> None:
    job = warehouse.job(ROWS, roll=AT_ONCE)
    job.run_to(1, finish_files=False)

    def busy(commit: Commit) -> None:
        raise CommitFailedException("busy")

    on_commit += [busy, busy]
    job.run_to(2)
    # Two lists and manifests of appends; the list and the new manifest of the replacement, and for each
    # append its manifest without the small files.
    assert len([*warehouse.root.rglob("*.avro")]) == 2 * 2 + 4


def test_files_that_readers_list_cannot_be_shown(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="readers of files would see rows twice"):
        ParquetSink(f"file://{tmp_path}", roll=AT_ONCE)


def test_copies_and_small_files_exclude_each_other(warehouse: ShownIceberg) -> None:
    with pytest.raises(InvalidInputError, match="in one way only"):
        warehouse.sink(roll=AT_ONCE, snapshot_open_files=True)


def test_a_table_with_partitions_by_a_double_is_refused(warehouse: ShownIceberg) -> None:
    schema = SCHEMA.append(pa.field("price", pa.float64()))
    with pytest.raises(InvalidInputError, match="partitioned by a double"):
        warehouse.sink(roll=AT_ONCE, partition_by=["price"]).check(schema)


def test_the_example_of_the_documentation_shows_rows_after_ten_seconds(tmp_path: Path) -> None:
    section = (ROOT / "docs" / "iceberg.md").read_text().split("## Fresh and large at once\n")[1]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    for place in (tmp_path / "once", tmp_path / "twice"):
        names: dict[str, Any] = {}
        exec(code.replace("/data/warehouse", str(place)), names)
        warehouse = ShownIceberg(place)
        job = warehouse.job_of(lambda names=names: names["fresh"], ROWS)
        job.ambient = clock = HandClock("hand")
        job.run_epoch()
        clock.time_ms += 10_000
        job.run_epoch()
        assert warehouse.rows() == expected_rows(ROWS, 2, 2)
        clock.time_ms += 3_590_000
        job.run_epoch()
        assert warehouse.operations() == ["append", "append", "replace"]
        assert warehouse.rows() == expected_rows(ROWS, 3, 2)
