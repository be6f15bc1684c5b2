"""A sink looks after its table, and takes away nothing that somebody needs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from tests.support.repository import ROOT
from tests.support.sinks.iceberg_job import EVERY_EPOCH, Warehouse
from tests.support.sinks.sink_job import SinkJob, expected_rows, numbered_rows

from lakestate.errors import ConflictError, InvalidInputError
from lakestate.sinks import Maintenance, Roll

ROWS = numbered_rows(20)
AT_ONCE = "0 seconds"
SHOWN = Roll(interval=None, visible=AT_ONCE)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "warehouse")


def job_of(warehouse: Warehouse, roll: Roll = EVERY_EPOCH, **settings: Any) -> SinkJob:
    chosen = {"every": AT_ONCE, "keep_snapshots": AT_ONCE, "keep_snapshots_min": 1, **settings}
    return warehouse.job(ROWS, roll=roll, maintenance=Maintenance(**chosen))


def data_files(warehouse: Warehouse) -> set[str]:
    return {str(path) for path in warehouse.root.rglob("*.parquet")}


def live_files(warehouse: Warehouse) -> set[str]:
    tasks = warehouse.table().scan().plan_files()
    return {task.file.file_path.removeprefix("file://") for task in tasks}


def test_old_snapshots_go_with_the_files_that_only_they_refer_to(warehouse: Warehouse) -> None:
    job = job_of(warehouse, SHOWN)
    job.run_to(4)
    assert warehouse.rows() == expected_rows(ROWS, 4, 2)
    assert len(warehouse.table().metadata.snapshots) == 1
    assert data_files(warehouse) == live_files(warehouse)
    table = warehouse.table()
    manifests = {each.manifest_path for each in table.current_snapshot().manifests(table.io)}
    kept = {str(path) for path in warehouse.root.rglob("*.avro")}
    assert kept == {
        path.removeprefix("file://") for path in (*manifests, table.current_snapshot().manifest_list)
    }


def test_a_tag_a_branch_and_the_newest_snapshots_keep_what_they_need(warehouse: Warehouse) -> None:
    plain = warehouse.job(ROWS)
    plain.run_to(4, finish_files=False)
    ids = [each.snapshot_id for each in warehouse.table().metadata.snapshots]
    warehouse.table().manage_snapshots().create_tag(ids[0], "audit").commit()
    warehouse.table().manage_snapshots().create_branch(ids[1], "what-if").commit()
    job = job_of(warehouse, keep_snapshots_min=2)
    job.published, job.ambient = plain.published, plain.ambient
    job.run_to(5)
    left = [each.snapshot_id for each in warehouse.table().metadata.snapshots]
    assert (left[:2], left[2:3], len(left)) == (ids[:2], ids[3:], 4)
    for epoch, snapshot_id in ((1, ids[0]), (2, ids[1]), (4, ids[3])):
        assert warehouse.rows(snapshot_id=snapshot_id) == expected_rows(ROWS, epoch, 2)
    assert warehouse.rows() == expected_rows(ROWS, 5, 2)


def test_young_snapshots_stay_and_nothing_is_done_before_it_is_time(warehouse: Warehouse) -> None:
    young = job_of(warehouse, keep_snapshots="1 day")
    young.run_to(3)
    assert warehouse.epochs() == ["1", "2", "3"]
    job = job_of(warehouse, every="1 hour")
    job.published, job.ambient = young.published, young.ambient
    job.clean_up()
    assert warehouse.epochs() == ["1", "2", "3"]


def test_small_files_are_merged_by_partition(warehouse: Warehouse) -> None:
    plain = warehouse.job(ROWS, partition_by=["country"])
    plain.run_to(3, finish_files=False)
    assert len(live_files(warehouse)) == 12
    job = job_of(warehouse, compact="1MB")
    job.published, job.ambient = plain.published, plain.ambient
    job.clean_up()
    assert warehouse.rows() == expected_rows(ROWS, 3, 2)
    assert len(live_files(warehouse)) == 2
    german = warehouse.table().scan(row_filter="country = 'DE'")
    assert len(list(german.plan_files())) == 1
    assert len(german.to_arrow()) == 60
    job.run_to(5)
    assert warehouse.rows() == expected_rows(ROWS, 5, 2)


def test_small_files_that_a_large_one_will_replace_are_not_merged(warehouse: Warehouse) -> None:
    job = job_of(warehouse, SHOWN, compact="1MB")
    job.run_to(4, finish_files=False)
    assert len(live_files(warehouse)) == 8
    job.run_epoch(finish_files=True)
    assert warehouse.rows() == expected_rows(ROWS, 5, 2)
    # Only then they are one sink's files like any others; it leaves them alone all the same.
    assert len(live_files(warehouse)) == 2


@pytest.mark.parametrize("happens", [True, False])
def test_a_merge_whose_commit_conflicts_loses_nothing(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, happens: bool
) -> None:
    plain = warehouse.job(ROWS)
    plain.run_to(3, finish_files=False)
    catalog = warehouse.catalog.load()
    commit_table, calls = catalog.commit_table, []

    def commit(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            if happens:
                commit_table(*args)
            raise CommitFailedException("409")
        return commit_table(*args)

    monkeypatch.setattr(catalog, "commit_table", commit)
    job = job_of(warehouse, compact="1MB", keep_snapshots=None)
    job.published, job.ambient = plain.published, plain.ambient
    job.clean_up()
    assert len(calls) == (2 if happens else 3)
    assert warehouse.rows() == expected_rows(ROWS, 3, 2)
    assert len(live_files(warehouse)) == 1


def test_a_merge_gives_up_if_somebody_touches_its_files(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = warehouse.job(ROWS)
    plain.run_to(2, finish_files=False)
    catalog = warehouse.catalog.load()
    commit_table, calls = catalog.commit_table, []

    def commit(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            warehouse.table().delete("country = 'DE'")
        return commit_table(*args)

    monkeypatch.setattr(catalog, "commit_table", commit)
    job = job_of(warehouse, compact="1MB", keep_snapshots=None)
    job.published, job.ambient = plain.published, plain.ambient
    job.clean_up()
    assert warehouse.rows() == [row for row in expected_rows(ROWS, 2, 2) if row % 2]


def test_orphans_of_this_sink_go_when_they_are_old_and_nothing_else(warehouse: Warehouse) -> None:
    job = job_of(warehouse, keep_snapshots=None, remove_orphans="1 day")
    job.run_to(1)
    (folder,) = {Path(path).parent for path in live_files(warehouse)}
    own = Path(min(live_files(warehouse))).name
    dead, young = own.replace("-0-", "-7-").replace("id-", "dead-"), own.replace("id-", "young-")
    next_epoch = own.replace("0000000001", "0000000099")
    foreign = "part-ffffffffffff-0000000001-00000-x.parquet"
    by_hand = "00000-1-by-hand.parquet"
    for name in (dead, young, next_epoch, foreign, by_hand):
        (folder / name).write_bytes(b"rows")
    for path in folder.glob("*.parquet"):
        if path.name != young:
            os.utime(path, (0, 0))
    job.run_to(2)
    left = {path.name for path in folder.glob("*.parquet")}
    assert dead not in left
    assert {young, next_epoch, foreign, by_hand} < left
    assert warehouse.rows() == expected_rows(ROWS, 2, 2)


def test_another_writer_that_interrupts_it_is_reported(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(warehouse)
    job.run_to(1)

    def busy(*args: Any) -> None:
        raise CommitFailedException("409")

    monkeypatch.setattr(warehouse.catalog.load(), "commit_table", busy)
    with pytest.raises(ConflictError, match="interrupted"):
        job.clean_up()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Maintenance(remove_orphans="1 hour"),
        lambda: Maintenance(keep_snapshots_min=0),
        lambda: Maintenance(every="soon"),
        lambda: Maintenance(compact="much"),
    ],
)
def test_settings_that_could_do_harm_are_refused(make: Callable[[], Maintenance]) -> None:
    with pytest.raises(InvalidInputError):
        make()


def test_a_table_with_a_key_is_not_looked_after(warehouse: Warehouse) -> None:
    with pytest.raises(InvalidInputError, match="does not look after"):
        warehouse.sink(key=["row"], maintenance=Maintenance())


def test_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    section = (ROOT / "docs" / "iceberg.md").read_text().split("## Keep it tidy\n")[1]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    for place in (tmp_path / "once", tmp_path / "twice"):
        names: dict[str, Any] = {}
        exec(code.replace("/data/warehouse", str(place)), names)
        warehouse = Warehouse(place)
        warehouse.job_of(lambda names=names: names["tidy"], ROWS).run_to(2)
        assert warehouse.rows() == expected_rows(ROWS, 2, 2)
        assert "lakestate.maintained-ms" in warehouse.table().properties
