"""Small files in a Delta table: what its log says, and the two commits of an epoch that replaces them.

What holds in all tables is in `test_visible_tables.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError
from tests.support.repository import ROOT
from tests.support.sinks.delta_job import one_batch
from tests.support.sinks.shown_tables import (
    AT_ONCE,
    Commit,
    HandClock,
    Instead,
    ShownDelta,
    fail_before,
    lose_the_answer,
)
from tests.support.sinks.sink_files import no_rows
from tests.support.sinks.sink_job import JOB, SCHEMA, SINK, SinkJob, expected_rows, numbered_rows

from lakestate.errors import CorruptionError, InvalidInputError
from lakestate.sinks.delta import epoch_log
from lakestate.sinks.files.names import sink_fingerprint
from lakestate.testing.faults import SimulatedCrash

ROWS = numbered_rows(20)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShownDelta:
    monkeypatch.setattr(epoch_log, "_WAIT_FIRST_S", 0)
    return ShownDelta(tmp_path / "orders % 1")


@pytest.fixture
def on_commit(folder: ShownDelta, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Instead | None]]:
    instead: list[Instead | None] = []
    folder.act_instead_of_commits(instead, monkeypatch)
    yield instead
    assert not instead, "there were to be more commits"


def finished_job(folder: ShownDelta, **settings: Any) -> SinkJob:
    """A job that shows two epochs, and whose third is published and finishes its files."""
    job = folder.job(ROWS, roll=AT_ONCE, **settings)
    job.run_to(2, finish_files=False)
    job.publish([job.attempt(subtask).finish(finish_files=True) for subtask in range(2)])
    return job


def test_a_replacement_changes_no_data_and_names_what_it_removes(folder: ShownDelta) -> None:
    folder.job(ROWS, roll=AT_ONCE, partition_by=["country"]).run_to(2)
    added = {each["path"]: each for each in folder.actions("add")}
    removed = folder.actions("remove")
    small = [path for path, each in added.items() if each["dataChange"]]
    large = [path for path, each in added.items() if not each["dataChange"]]
    assert (len(small), len(large)) == (8, 4)
    assert sorted(each["path"] for each in removed) == sorted(small)
    assert [each["dataChange"] for each in removed] == [False] * 8
    for each in removed:
        assert each["partitionValues"] == added[each["path"]]["partitionValues"]
        assert each["size"] == added[each["path"]]["size"]
    assert sum(json.loads(added[path]["stats"])["numRecords"] for path in large) == 80


def test_each_commit_of_an_epoch_has_an_entry_of_its_own(folder: ShownDelta) -> None:
    finished_job(folder).commit()
    app_id = f"lakestate/{JOB}/{sink_fingerprint(JOB, SINK, '')}"
    names = [each["txn"]["appId"] for each in folder.actions_of(4) if "txn" in each]
    assert names == [f"{app_id}/replaced", f"{app_id}/replaced/content"]
    assert folder.table().transaction_version(app_id) == 3
    assert folder.table().transaction_version(f"{app_id}/replaced") == 3


def test_an_epoch_without_new_rows_replaces_in_its_only_commit(folder: ShownDelta) -> None:
    job = folder.job(ROWS, roll=AT_ONCE)
    job.run_to(2, finish_files=False)
    job.rows = lambda epoch, subtask: no_rows()
    job.run_epoch(finish_files=True)
    assert folder.operations() == ["append", "append", "replace"]
    app_id = f"lakestate/{JOB}/{sink_fingerprint(JOB, SINK, '')}"
    assert folder.table().transaction_version(app_id) == 3
    assert folder.table().transaction_version(f"{app_id}/replaced") is None
    version = folder.table().version()
    job.commit()
    assert folder.table().version() == version


@pytest.mark.parametrize("moment", [fail_before, lose_the_answer])
def test_a_driver_that_dies_between_the_two_commits_leaves_the_second_to_the_next_one(
    folder: ShownDelta, on_commit: list[Instead | None], moment: Instead
) -> None:
    job = finished_job(folder)
    on_commit += [None, moment]
    with pytest.raises(SimulatedCrash):
        job.commit()
    assert folder.rows() == expected_rows(ROWS, 3, 2)
    job.commit()
    job.commit()
    assert folder.operations() == ["append"] * 3 + ["replace"]
    assert folder.rows() == folder.appended_rows() == expected_rows(ROWS, 3, 2)
    assert folder.file_count() == 2


@pytest.mark.parametrize("error", [CommitFailedError("412"), OSError("timed out"), Exception("?")])
def test_a_replacement_whose_answer_is_lost_or_that_fails_is_made_once(
    folder: ShownDelta, on_commit: list[Instead | None], error: Exception
) -> None:
    def fail(commit: Commit) -> None:
        raise error

    def lose(commit: Commit) -> None:
        commit()
        raise error

    job = finished_job(folder)
    on_commit += [None, fail, lose]
    job.commit()
    assert folder.operations() == ["append"] * 3 + ["replace"]
    assert folder.rows() == expected_rows(ROWS, 3, 2)


def test_a_large_file_that_was_vacuumed_between_the_two_commits_is_left_out(
    folder: ShownDelta, on_commit: list[Instead | None], caplog: pytest.LogCaptureFixture
) -> None:
    job = finished_job(folder)
    on_commit += [None, fail_before]
    with pytest.raises(SimulatedCrash):
        job.commit()
    folder.table().vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    job.commit()
    assert "no longer in the table's folder" in caplog.text
    assert folder.operations()[-1] == "record"
    assert folder.rows() == expected_rows(ROWS, 3, 2)
    assert folder.file_count() == 6


def test_somebody_compacts_between_the_look_of_a_replacement_and_its_commit(
    folder: ShownDelta, on_commit: list[Instead | None]
) -> None:
    def after_a_compaction(commit: Commit) -> None:
        folder.compact()
        commit()

    job = finished_job(folder)
    on_commit += [None, after_a_compaction]
    job.commit()
    assert folder.rows() == expected_rows(ROWS, 3, 2)
    assert folder.file_count() == 1


def test_a_zombie_that_wakes_up_before_its_replacement_changes_nothing(
    folder: ShownDelta, on_commit: list[Instead | None]
) -> None:
    job = finished_job(folder)
    zombie = replace(job, published=job.published)

    def after_its_successor(commit: Commit) -> None:
        job.commit()
        job.run_to(5)
        commit()

    on_commit += [None, after_its_successor]
    zombie.commit()
    zombie.commit()
    assert folder.rows() == folder.appended_rows() == expected_rows(ROWS, 5, 2)
    assert folder.file_count() == 4


def test_rows_that_nobody_counted_are_not_replaced(
    folder: ShownDelta, caplog: pytest.LogCaptureFixture
) -> None:
    """Checkpoints may drop statistics: then nobody knows whether the rows add up."""
    job = folder.job(ROWS, roll=AT_ONCE)
    job.run_to(2, finish_files=False)
    for commit in (folder.root / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for line in lines:
            line.get("add", {}).pop("stats", None)
        commit.write_text("\n".join(json.dumps(line) for line in lines))
    job.run_to(3)
    assert "does not say how many rows" in caplog.text
    assert folder.rows() == expected_rows(ROWS, 3, 2)


def test_small_files_with_too_few_rows_stop_the_job(folder: ShownDelta) -> None:
    job = finished_job(folder)
    commit = folder.root / "_delta_log" / f"{1:020d}.json"
    commit.write_text(commit.read_text().replace('\\"numRecords\\":20', '\\"numRecords\\":19'))
    with pytest.raises(CorruptionError, match="fewer rows than the file that is to take their place"):
        job.commit()


@pytest.mark.parametrize(
    "properties", [{"delta.appendOnly": "true"}, {"delta.enableChangeDataFeed": "true"}], ids=str
)
def test_tables_that_watch_changes_allow_replacements(folder: ShownDelta, properties: dict[str, str]) -> None:
    folder.job(ROWS, roll=AT_ONCE, properties=properties).run_to(3)
    assert folder.operations() == ["append"] * 3 + ["replace"]
    assert folder.rows() == expected_rows(ROWS, 3, 2)


def test_partitions_of_any_name_are_found_again(folder: ShownDelta) -> None:
    names = ["a/b=ü :%20 x", "", None, "%2F", "100 %"]
    rows = pa.table({"row": range(5), "country": names, "text": [""] * 5}, schema=SCHEMA)
    folder.job(one_batch(rows.to_batches()[0]), roll=AT_ONCE, partition_by=["country"]).run_to(3)
    assert folder.rows() == sorted([*range(5)] * 3)
    assert (folder.operations(), folder.file_count()) == (["append"] * 3 + ["replace"], 4)


def test_replaced_files_are_found_in_a_table_that_was_read_from_a_checkpoint(folder: ShownDelta) -> None:
    job = folder.job(ROWS, roll=AT_ONCE)
    job.run_to(2, finish_files=False)
    folder.table().create_checkpoint()
    for commit in (folder.root / "_delta_log").glob("*.json"):
        if int(commit.stem) < folder.table().version():
            commit.unlink()
    job.run_to(3)
    assert folder.rows() == expected_rows(ROWS, 3, 2)
    assert folder.file_count() == 2


def test_vacuum_removes_what_was_replaced(folder: ShownDelta) -> None:
    folder.job(ROWS, roll=AT_ONCE).run_to(3)
    folder.table().vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert len([*folder.root.glob("*.parquet")]) == 2
    assert folder.rows() == expected_rows(ROWS, 3, 2)


def test_copies_and_small_files_exclude_each_other(folder: ShownDelta) -> None:
    with pytest.raises(InvalidInputError, match="in one way only"):
        folder.sink(roll=AT_ONCE, snapshot_open_files=True)


def test_the_example_of_the_documentation_shows_rows_after_ten_seconds(tmp_path: Path) -> None:
    section = (ROOT / "docs" / "sinks" / "delta.md").read_text().split("## Fresh and large at once\n")[1]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    for place in (tmp_path / "once", tmp_path / "twice"):
        names: dict[str, Any] = {}
        exec(code.replace("/data", str(place)), names)
        folder = ShownDelta(place / "orders")
        names["fresh"].check(SCHEMA)
        job = SinkJob(lambda names=names: names["fresh"], ROWS)  # type: ignore[misc]
        job.ambient = clock = HandClock("hand")
        job.run_epoch()
        clock.time_ms += 10_000
        job.run_epoch()
        assert folder.rows() == expected_rows(ROWS, 2, 2)
        clock.time_ms += 3_590_000
        job.run_epoch()
        assert folder.operations() == ["append", "append", "replace"]
        assert folder.rows() == expected_rows(ROWS, 3, 2)
