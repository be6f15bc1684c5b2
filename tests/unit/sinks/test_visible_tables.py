"""Rows of open files are visible in small ones, and the large file takes their place: each is seen once.

In tables of every format that can replace files in one commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.sinks.shown_tables import (
    AT_ONCE,
    LATER,
    Commit,
    HandClock,
    Instead,
    ShownDelta,
    ShownIceberg,
    ShownTable,
    fail_before,
    lose_the_answer,
)
from tests.support.sinks.sink_files import no_rows
from tests.support.sinks.sink_job import SinkJob, expected_rows, numbered_rows

from lakestate.sinks import Roll
from lakestate.sinks.delta import epoch_log
from lakestate.sinks.files.pre_commit import PreCommit
from lakestate.testing.faults import SimulatedCrash

ROWS = numbered_rows(20)


@pytest.fixture(params=[ShownIceberg, ShownDelta], ids=["iceberg", "delta"])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShownTable:
    monkeypatch.setattr(epoch_log, "_WAIT_FIRST_S", 0)
    made: ShownTable = request.param(tmp_path / "table")
    return made


@pytest.fixture
def on_commit(table: ShownTable, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Instead | None]]:
    """What happens instead of the next commits; None lets one pass."""
    instead: list[Instead | None] = []
    table.act_instead_of_commits(instead, monkeypatch)
    yield instead
    assert not instead, "there were to be more commits"


def test_every_version_holds_each_row_of_its_epochs_once(table: ShownTable) -> None:
    job = table.job(ROWS, roll=AT_ONCE)
    job.run_to(4)
    assert table.operations() == ["append"] * 4 + ["replace"]
    epochs = [expected_rows(ROWS, epoch, 2) for epoch in (1, 2, 3, 4, 4)]
    assert table.rows_at_every_version() == epochs
    assert table.appended_rows() == epochs[-1]
    assert table.file_count() == 2
    assert table.epochs() == ["1", "2", "3", "4", "4"]


def test_rows_become_visible_in_the_rhythm_that_was_asked_for(table: ShownTable) -> None:
    clock = HandClock("hand")
    job = table.job(ROWS, roll=Roll(interval=None, visible="10 seconds"))
    job.ambient = clock
    seen = []
    for _ in range(5):
        job.run_epoch()
        clock.time_ms += 4_000
        seen.append(len(table.rows()))
    # Rows of the epoch at 0 s wait until 12 s; those of 16 s are the first that wait again.
    assert seen == [0, 0, 0, 160, 160]
    assert PreCommit.decode(job.published.pre_commits[0]).due_ms == 1_700_000_000_000 + 26_000
    clock.time_ms += 6_000
    job.rows = lambda epoch, subtask: no_rows()
    job.run_epoch()
    assert table.rows() == expected_rows(ROWS, 5, 2)
    assert table.operations() == ["append", "append"]
    job.run_epoch(finish_files=True)
    assert table.rows() == expected_rows(ROWS, 5, 2)
    assert (table.operations()[2:], table.file_count()) == (["replace"], 2)


def test_a_file_that_is_finished_before_its_rows_are_shown_needs_no_small_one(table: ShownTable) -> None:
    table.job(ROWS, roll=Roll(interval=None, visible="1 hour")).run_to(3)
    assert (table.operations(), table.file_count()) == (["append"], 2)
    assert table.rows() == expected_rows(ROWS, 3, 2)
    assert sorted(path.name for path in table.root.rglob(".lakestate/open/*")) == []


def test_the_last_rows_are_appended_before_they_are_replaced(table: ShownTable) -> None:
    """So that whoever follows appended rows sees them too."""
    clock = HandClock("hand")
    job = table.job(ROWS, roll=Roll(interval=None, visible="10 seconds"))
    job.ambient = clock
    job.run_epoch()
    clock.time_ms += 10_000
    job.run_epoch()
    job.run_epoch(finish_files=True)
    assert table.operations() == ["append", "append", "replace"]
    assert table.appended_rows() == table.rows() == expected_rows(ROWS, 3, 2)


@pytest.mark.parametrize("parallelism", [[4, 1], [1, 3], [4, 2, 3]])
def test_small_files_follow_their_large_one_through_rescaling(
    table: ShownTable, parallelism: list[int]
) -> None:
    clock = HandClock("hand")
    job = table.job(ROWS, roll=Roll(interval=None, visible="5 seconds"), partition_by=["country"])
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
    assert table.rows() == table.appended_rows() == sorted(expected)
    assert sorted(path.name for path in table.root.rglob(".lakestate/open/*")) == []


@pytest.mark.parametrize("epochs_after", [0, 1, 2])
def test_after_somebody_compacted_small_files_rows_are_neither_lost_nor_doubled(
    table: ShownTable, epochs_after: int, caplog: pytest.LogCaptureFixture
) -> None:
    job = table.job(ROWS, roll=AT_ONCE)
    job.run_to(3, finish_files=False)
    table.compact()
    job.run_to(3 + epochs_after, finish_files=False)
    job.rows = lambda epoch, subtask: no_rows()
    job.run_epoch(finish_files=True)
    assert table.rows() == expected_rows(ROWS, 3 + epochs_after, 2)
    assert table.file_count() == 1 + 2 * epochs_after
    assert "is no longer in the table" in caplog.text
    before = table.epochs()
    job.commit()
    assert table.epochs() == before, "the epoch is recorded, although it adds no file"


def test_rows_that_somebody_deleted_do_not_come_back(table: ShownTable) -> None:
    job = table.job(ROWS, roll=AT_ONCE)
    job.run_to(2, finish_files=False)
    table.delete_country("DE")
    job.run_to(3)
    deleted = {row for row in expected_rows(ROWS, 2, 2) if row % 2 == 0}
    assert table.rows() == sorted({*expected_rows(ROWS, 3, 2)} - deleted)


def test_a_file_replaces_its_small_ones_although_others_were_compacted(table: ShownTable) -> None:
    """Only what was touched stays as it is."""
    job = table.job(ROWS, roll=AT_ONCE, partition_by=["country"])
    job.run_to(2, finish_files=False)
    table.compact("DE")
    job.run_to(3)
    assert table.rows() == expected_rows(ROWS, 3, 2)
    by_country = table.countries()
    assert (by_country.count("FR"), by_country.count("DE")) == (2, 3)


@pytest.mark.parametrize("moment", [fail_before, lose_the_answer])
@pytest.mark.parametrize("number", range(4))
def test_a_crash_around_any_commit_leaves_every_version_exact(
    table: ShownTable, on_commit: list[Instead | None], moment: Instead, number: int
) -> None:
    on_commit += [*[None] * number, moment]
    job = table.job(ROWS, roll=AT_ONCE)
    job.run_to(4)
    assert job.failures == 1
    assert table.rows_at_every_version() == [expected_rows(ROWS, epoch, 2) for epoch in (1, 2, 3, 4, 4)]


def test_somebody_compacts_between_our_look_and_our_commit(
    table: ShownTable, on_commit: list[Instead | None]
) -> None:
    def after_a_compaction(commit: Commit) -> Any:
        table.compact()
        return commit()

    job = table.job(ROWS, roll=AT_ONCE)
    on_commit += [None, None, after_a_compaction]
    job.run_to(3)
    assert table.rows() == expected_rows(ROWS, 3, 2)
    assert table.file_count() == 1 + 2


def test_a_zombie_that_replaces_an_hour_later_changes_nothing(
    table: ShownTable, on_commit: list[Instead | None]
) -> None:
    job = table.job(ROWS, roll=AT_ONCE)
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
    assert table.rows() == expected_rows(ROWS, 5, 2)


def test_an_attempt_that_crashes_between_small_and_large_file_is_repeated(
    table: ShownTable, on_commit: list[Instead | None]
) -> None:
    job = table.job(ROWS, roll=AT_ONCE)
    job.run_to(2, finish_files=False)
    for subtask in range(2):
        attempt = job.attempt(subtask)
        attempt.writer.write(attempt.batch)
        attempt.writer.abandon()
    job.publish([job.attempt(subtask).finish(finish_files=True) for subtask in range(2)])
    on_commit.append(fail_before)
    with pytest.raises(SimulatedCrash):
        job.commit()
    job.commit()
    job.clean_up()
    assert table.rows() == expected_rows(ROWS, 3, 2)
    assert sorted(path.name for path in table.root.rglob(".lakestate/open/*")) == []


@pytest.mark.parametrize("rolls", [[AT_ONCE, LATER], [LATER, AT_ONCE], [LATER, AT_ONCE, LATER, AT_ONCE]])
def test_files_that_are_open_when_the_setting_changes_are_finished(
    table: ShownTable, rolls: list[Roll]
) -> None:
    job: SinkJob = table.job(ROWS)
    for roll in rolls:
        job.open_sink = lambda roll=roll: table.sink(roll=roll)  # type: ignore[assignment,misc]
        job.run_to(job.published.epoch + 2, finish_files=False)
    job.run_epoch(finish_files=True)
    assert table.rows() == table.appended_rows() == expected_rows(ROWS, 2 * len(rolls) + 1, 2)
    assert table.file_count() == 2 * len(rolls)
