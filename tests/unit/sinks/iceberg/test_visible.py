"""Rows of open files are visible in small ones, and the large file takes their place: each is seen once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import EqualTo
from tests.support.repository import ROOT
from tests.support.sinks.iceberg_job import Warehouse
from tests.support.sinks.sink_files import no_rows
from tests.support.sinks.sink_job import SCHEMA, SinkJob, expected_rows, numbered_rows

from lakestate.errors import InvalidInputError
from lakestate.sinks import ParquetSink, Roll
from lakestate.sinks.files.pre_commit import PreCommit
from lakestate.sinks.iceberg.commits.change import TableChange
from lakestate.testing.faults import SimulatedCrash
from lakestate.testing.stepping import SteppingAmbient

ROWS = numbered_rows(20)
AT_ONCE = Roll(interval=None, visible="0 seconds")
"""Every epoch shows its rows, and only the end of the job finishes files."""
LATER = Roll(interval=None)
"""Rows are visible when a file is finished."""


class HandClock(SteppingAmbient):
    """Stands still until a test moves it."""

    time_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.time_ms


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "warehouse")


def rows_at_every_snapshot(warehouse: Warehouse) -> list[list[int]]:
    snapshots = warehouse.table().metadata.snapshots
    return [warehouse.rows(snapshot_id=each.snapshot_id) for each in snapshots]


def appended_rows(warehouse: Warehouse) -> list[int]:
    """What somebody has read who reads only the files that each appending snapshot added."""
    table, found = warehouse.table(), []
    for snapshot in table.metadata.snapshots:
        if snapshot.summary.operation.value != "append":
            continue
        added = [
            entry.data_file.file_path
            for manifest in snapshot.manifests(table.io)
            if manifest.added_snapshot_id == snapshot.snapshot_id
            for entry in manifest.fetch_manifest_entry(table.io)
            if entry.snapshot_id == snapshot.snapshot_id
        ]
        for path in added:
            found += pq.read_table(path.removeprefix("file://"))["row"].to_pylist()
    return sorted(found)


def operations(warehouse: Warehouse) -> list[str]:
    return [each.summary.operation.value for each in warehouse.table().metadata.snapshots]


def file_count(warehouse: Warehouse) -> int:
    return len(list(warehouse.table().scan().plan_files()))


def test_every_snapshot_holds_each_row_of_its_epochs_once(warehouse: Warehouse) -> None:
    job = warehouse.job(ROWS, roll=AT_ONCE)
    job.run_to(4)
    assert operations(warehouse) == ["append"] * 4 + ["replace"]
    epochs = [expected_rows(ROWS, epoch, 2) for epoch in (1, 2, 3, 4, 4)]
    assert rows_at_every_snapshot(warehouse) == epochs
    assert appended_rows(warehouse) == epochs[-1]
    assert file_count(warehouse) == 2
    assert warehouse.epochs() == ["1", "2", "3", "4", "4"]


def test_what_a_table_says_of_its_files_and_rows_is_right_after_a_replacement(warehouse: Warehouse) -> None:
    warehouse.job(ROWS, roll=AT_ONCE, partition_by=["country"]).run_to(3)
    table = warehouse.table()
    summary = table.current_snapshot().summary.additional_properties
    files = [task.file for task in table.scan().plan_files()]
    assert (summary["total-data-files"], summary["total-records"]) == (str(len(files)), "120")
    assert summary["total-files-size"] == str(sum(file.file_size_in_bytes for file in files))
    assert (summary["added-records"], summary["deleted-records"]) == ("120", "120")


def test_rows_become_visible_in_the_rhythm_that_was_asked_for(warehouse: Warehouse) -> None:
    clock = HandClock("hand")
    job = warehouse.job(ROWS, roll=Roll(interval=None, visible="10 seconds"))
    job.ambient = clock
    seen = []
    for _ in range(5):
        job.run_epoch()
        clock.time_ms += 4_000
        seen.append(len(warehouse.rows()))
    # Rows of the epoch at 0 s wait until 12 s; those of 16 s are the first that wait again.
    assert seen == [0, 0, 0, 160, 160]
    assert PreCommit.decode(job.published.pre_commits[0]).due_ms == 1_700_000_000_000 + 26_000
    clock.time_ms += 6_000
    job.rows = lambda epoch, subtask: no_rows()
    job.run_epoch()
    assert warehouse.rows() == expected_rows(ROWS, 5, 2)
    assert operations(warehouse) == ["append", "append"]
    job.run_epoch(finish_files=True)
    assert warehouse.rows() == expected_rows(ROWS, 5, 2)
    assert (operations(warehouse)[2:], file_count(warehouse)) == (["replace"], 2)


def test_a_file_that_is_finished_before_its_rows_are_shown_needs_no_small_one(warehouse: Warehouse) -> None:
    warehouse.job(ROWS, roll=Roll(interval=None, visible="1 hour")).run_to(3)
    assert (operations(warehouse), file_count(warehouse)) == (["append"], 2)
    assert warehouse.rows() == expected_rows(ROWS, 3, 2)
    assert sorted(path.name for path in warehouse.root.rglob(".lakestate/open/*")) == []


def test_the_last_rows_are_appended_before_they_are_replaced(warehouse: Warehouse) -> None:
    """So that whoever follows appended rows sees them too."""
    clock = HandClock("hand")
    job = warehouse.job(ROWS, roll=Roll(interval=None, visible="10 seconds"))
    job.ambient = clock
    job.run_epoch()
    clock.time_ms += 10_000
    job.run_epoch()
    job.run_epoch(finish_files=True)
    assert operations(warehouse) == ["append", "append", "replace"]
    assert appended_rows(warehouse) == warehouse.rows() == expected_rows(ROWS, 3, 2)


@pytest.mark.parametrize("parallelism", [[4, 1], [1, 3], [4, 2, 3]])
def test_small_files_follow_their_large_one_through_rescaling(
    warehouse: Warehouse, parallelism: list[int]
) -> None:
    clock = HandClock("hand")
    job = warehouse.job(ROWS, roll=Roll(interval=None, visible="5 seconds"), partition_by=["country"])
    job.ambient = clock
    expected = []
    for subtasks in parallelism:
        job.parallelism = subtasks
        for _ in range(3):
            epoch = job.published.epoch + 1
            expected += [row for each in range(subtasks) for row in job.rows(epoch, each)["row"].to_pylist()]
            job.run_epoch()
            clock.time_ms += 2_000
    job.rows = lambda epoch, subtask: no_rows()
    job.run_epoch(finish_files=True)
    assert warehouse.rows() == appended_rows(warehouse) == sorted(expected)
    assert sorted(path.name for path in warehouse.root.rglob(".lakestate/open/*")) == []


def compact(warehouse: Warehouse) -> None:
    """Somebody rewrites all files of the table into one."""
    table = warehouse.table()
    rows = table.scan().to_arrow()
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
        for task in table.scan().plan_files():
            snapshot.delete_data_file(task.file)
        for file in _written_files(table, rows):
            snapshot.append_data_file(file)


def _written_files(table: Any, rows: pa.Table) -> list[Any]:
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    return list(_dataframe_to_data_files(table_metadata=table.metadata, df=rows, io=table.io))


@pytest.mark.parametrize("epochs_after", [0, 1, 2])
def test_after_somebody_compacted_small_files_rows_are_neither_lost_nor_doubled(
    warehouse: Warehouse, epochs_after: int, caplog: pytest.LogCaptureFixture
) -> None:
    job = warehouse.job(ROWS, roll=AT_ONCE)
    job.run_to(3, finish_files=False)
    compact(warehouse)
    job.run_to(3 + epochs_after, finish_files=False)
    job.rows = lambda epoch, subtask: no_rows()
    job.run_epoch(finish_files=True)
    assert warehouse.rows() == expected_rows(ROWS, 3 + epochs_after, 2)
    assert file_count(warehouse) == 1 + 2 * epochs_after
    assert "is no longer in the table" in caplog.text
    before = warehouse.table().metadata
    job.commit()
    assert warehouse.table().metadata == before, "the epoch is recorded, although it adds no file"


def test_rows_that_somebody_deleted_do_not_come_back(warehouse: Warehouse) -> None:
    job = warehouse.job(ROWS, roll=AT_ONCE)
    job.run_to(2, finish_files=False)
    warehouse.table().delete(EqualTo("country", "DE"))
    job.run_to(3)
    deleted = {row for row in expected_rows(ROWS, 2, 2) if row % 2 == 0}
    assert warehouse.rows() == sorted({*expected_rows(ROWS, 3, 2)} - deleted)


def test_a_file_replaces_its_small_ones_although_others_were_compacted(warehouse: Warehouse) -> None:
    """Only what was touched stays as it is."""
    job = warehouse.job(ROWS, roll=AT_ONCE, partition_by=["country"])
    job.run_to(2, finish_files=False)
    table = warehouse.table()
    german = [task.file for task in table.scan(row_filter="country = 'DE'").plan_files()]
    rows = table.scan(row_filter="country = 'DE'").to_arrow()
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
        for file in german:
            snapshot.delete_data_file(file)
        for file in _written_files(table, rows):
            snapshot.append_data_file(file)
    job.run_to(3)
    assert warehouse.rows() == expected_rows(ROWS, 3, 2)
    by_country = [task.file.partition[0] for task in warehouse.table().scan().plan_files()]
    assert (by_country.count("FR"), by_country.count("DE")) == (2, 3)


def test_expired_snapshots_do_not_keep_small_files_from_being_replaced(warehouse: Warehouse) -> None:
    job = warehouse.job(ROWS, roll=AT_ONCE)
    job.run_to(3, finish_files=False)
    ids = [each.snapshot_id for each in warehouse.table().metadata.snapshots][:-1]
    for snapshot_id in ids:
        warehouse.table().maintenance.expire_snapshots().by_id(snapshot_id).commit()
    job.run_to(4)
    assert warehouse.rows() == expected_rows(ROWS, 4, 2)
    assert file_count(warehouse) == 2


Commit = Callable[..., Any]


@pytest.fixture
def on_commit(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Commit | None]]:
    """What the catalog does instead of its next commits; None lets one pass."""
    instead: list[Commit | None] = []
    catalog = warehouse.catalog.load()
    commit_table = catalog.commit_table

    def commit(*args: Any) -> Any:
        act = instead.pop(0) if instead else None
        return commit_table(*args) if act is None else act(lambda: commit_table(*args))

    monkeypatch.setattr(catalog, "commit_table", commit)
    yield instead
    assert not instead, "the catalog was to be asked more often"


def lost(commit: Commit) -> None:
    commit()
    raise SimulatedCrash("driver")


def failed(commit: Commit) -> None:
    raise SimulatedCrash("driver")


@pytest.mark.parametrize("moment", [failed, lost])
@pytest.mark.parametrize("number", range(4))
def test_a_crash_around_any_commit_leaves_every_snapshot_exact(
    warehouse: Warehouse, on_commit: list[Commit | None], moment: Commit, number: int
) -> None:
    on_commit += [*[None] * number, moment]
    job = warehouse.job(ROWS, roll=AT_ONCE)
    job.run_to(4)
    assert job.failures == 1
    assert rows_at_every_snapshot(warehouse) == [expected_rows(ROWS, epoch, 2) for epoch in (1, 2, 3, 4, 4)]


def test_somebody_compacts_between_our_look_and_our_commit(
    warehouse: Warehouse, on_commit: list[Commit | None]
) -> None:
    def after_a_compaction(commit: Commit) -> Any:
        compact(warehouse)
        return commit()

    job = warehouse.job(ROWS, roll=AT_ONCE)
    on_commit += [None, None, after_a_compaction]
    job.run_to(3)
    assert warehouse.rows() == expected_rows(ROWS, 3, 2)
    assert file_count(warehouse) == 1 + 2


def test_a_zombie_that_replaces_an_hour_later_changes_nothing(
    warehouse: Warehouse, on_commit: list[Commit | None]
) -> None:
    job = warehouse.job(ROWS, roll=AT_ONCE)
    job.run_to(2, finish_files=False)
    job.publish([job.attempt(subtask).finish(finish_files=True) for subtask in range(2)])
    zombie = replace(job, published=job.published)

    def after_its_successor(commit: Commit) -> Any:
        job.commit()
        job.run_to(5, finish_files=False)
        return commit()

    on_commit.append(after_its_successor)
    zombie.commit()
    zombie.commit()
    assert warehouse.rows() == expected_rows(ROWS, 5, 2)


def test_a_try_that_failed_leaves_no_manifests(
    warehouse: Warehouse, on_commit: list[Commit | None], monkeypatch: pytest.MonkeyPatch
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


def test_an_attempt_that_crashes_between_small_and_large_file_is_repeated(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = warehouse.job(ROWS, roll=AT_ONCE)
    job.run_to(2, finish_files=False)
    for subtask in range(2):
        attempt = job.attempt(subtask)
        attempt.writer.write(attempt.batch)
        attempt.writer.abandon()
    with monkeypatch.context() as patched:
        patched.setattr(TableChange, "commit", lambda change: failed(lambda: None))
        job.publish([job.attempt(subtask).finish(finish_files=True) for subtask in range(2)])
        with pytest.raises(SimulatedCrash):
            job.commit()
    job.commit()
    job.clean_up()
    assert warehouse.rows() == expected_rows(ROWS, 3, 2)
    assert sorted(path.name for path in warehouse.root.rglob(".lakestate/open/*")) == []


def test_files_that_readers_list_cannot_be_shown(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="readers of files would see rows twice"):
        ParquetSink(f"file://{tmp_path}", roll=AT_ONCE)


def test_copies_and_small_files_exclude_each_other(warehouse: Warehouse) -> None:
    with pytest.raises(InvalidInputError, match="in one way only"):
        warehouse.sink(roll=AT_ONCE, snapshot_open_files=True)


def test_a_table_with_partitions_by_a_double_is_refused(warehouse: Warehouse) -> None:
    schema = SCHEMA.append(pa.field("price", pa.float64()))
    with pytest.raises(InvalidInputError, match="partitioned by a double"):
        warehouse.sink(roll=AT_ONCE, partition_by=["price"]).check(schema)


@pytest.mark.parametrize("rolls", [[AT_ONCE, LATER], [LATER, AT_ONCE], [LATER, AT_ONCE, LATER, AT_ONCE]])
def test_files_that_are_open_when_the_setting_changes_are_finished(
    warehouse: Warehouse, rolls: list[Roll]
) -> None:
    job: SinkJob = warehouse.job(ROWS)
    for roll in rolls:
        job.open_sink = lambda roll=roll: warehouse.sink(roll=roll)  # type: ignore[assignment,misc]
        job.run_to(job.published.epoch + 2, finish_files=False)
    job.run_epoch(finish_files=True)
    assert warehouse.rows() == appended_rows(warehouse) == expected_rows(ROWS, 2 * len(rolls) + 1, 2)
    assert file_count(warehouse) == 2 * len(rolls)


def test_the_example_of_the_documentation_shows_rows_after_ten_seconds(tmp_path: Path) -> None:
    section = (ROOT / "docs" / "iceberg.md").read_text().split("## Fresh and large at once\n")[1]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    for place in (tmp_path / "once", tmp_path / "twice"):
        names: dict[str, Any] = {}
        exec(code.replace("/data/warehouse", str(place)), names)
        warehouse = Warehouse(place)
        job = warehouse.job_of(lambda names=names: names["fresh"], ROWS)
        job.ambient = clock = HandClock("hand")
        job.run_epoch()
        clock.time_ms += 10_000
        job.run_epoch()
        assert warehouse.rows() == expected_rows(ROWS, 2, 2)
        clock.time_ms += 3_590_000
        job.run_epoch()
        assert operations(warehouse) == ["append", "append", "replace"]
        assert warehouse.rows() == expected_rows(ROWS, 3, 2)
