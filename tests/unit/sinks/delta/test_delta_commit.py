"""Each epoch is in a Delta table exactly once, whatever happens to its commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from tests.support.sinks.delta_job import NEVER, DeltaFolder
from tests.support.sinks.sink_job import JOB, SCHEMA, SINK, SinkJob, expected_rows, numbered_rows, permit_for

from lakestate.errors import (
    ConflictError,
    CorruptionError,
    IncompatibleStateError,
    InvalidInputError,
    OutcomeUnknownError,
)
from lakestate.sinks.delta import epoch_log
from lakestate.sinks.files.names import sink_fingerprint
from lakestate.testing.faults import SimulatedCrash

ROWS = numbered_rows(20)

Commit = Callable[[], Any]
Instead = Callable[[Commit], Any]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaFolder:
    monkeypatch.setattr(epoch_log, "_WAIT_FIRST_S", 0)
    return DeltaFolder(tmp_path / "orders")


@pytest.fixture
def on_commit(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Instead]]:
    """What happens instead of the next commits; each gets the commit itself."""
    instead: list[Instead] = []
    commit_files = DeltaTable.create_write_transaction

    def commit(table: DeltaTable, *args: Any, **settings: Any) -> None:
        if not instead:
            commit_files(table, *args, **settings)
            return
        instead.pop(0)(lambda: commit_files(table, *args, **settings))

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)
    yield instead
    assert not instead, "there were to be more commits"


def published_epoch(folder: DeltaFolder) -> SinkJob:
    """A job whose first epoch is published and not committed."""
    job = folder.job(ROWS)
    job.publish([job.attempt(subtask).finish() for subtask in range(2)])
    return job


def losing_the_answer(error: BaseException) -> Instead:
    def act(commit: Commit) -> None:
        commit()
        raise error

    return act


def failing(error: BaseException) -> Instead:
    def act(commit: Commit) -> None:
        raise error

    return act


def after(first: Callable[[], Any]) -> Instead:
    """Somebody else does something between our look at the table and our commit."""

    def act(commit: Commit) -> None:
        first()
        commit()

    return act


ERRORS = [CommitFailedError("412"), OSError("timed out"), DeltaError("?"), Exception("External error")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_commit_whose_answer_is_lost_is_not_repeated(
    folder: DeltaFolder, on_commit: list[Instead], error: Exception
) -> None:
    job = published_epoch(folder)
    on_commit.append(losing_the_answer(error))
    job.commit()
    assert folder.rows() == expected_rows(ROWS, 1, 2)
    assert folder.epochs() == ["1"]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_commit_that_fails_is_repeated(
    folder: DeltaFolder, on_commit: list[Instead], error: Exception
) -> None:
    job = published_epoch(folder)
    on_commit += [failing(error), failing(error)]
    job.commit()
    assert folder.rows() == expected_rows(ROWS, 1, 2)
    assert folder.epochs() == ["1"]


@pytest.mark.parametrize("moment", [failing, losing_the_answer])
def test_a_driver_that_dies_at_the_commit_leaves_the_epoch_to_the_next_one(
    folder: DeltaFolder, on_commit: list[Instead], moment: Callable[[BaseException], Instead]
) -> None:
    job = published_epoch(folder)
    on_commit.append(moment(SimulatedCrash("killed")))
    with pytest.raises(SimulatedCrash):
        job.commit()
    job.commit()
    assert folder.rows() == expected_rows(ROWS, 1, 2)
    assert folder.epochs() == ["1"]


def test_an_epoch_that_another_driver_commits_at_the_same_moment_is_in_once(
    folder: DeltaFolder, on_commit: list[Instead]
) -> None:
    job = published_epoch(folder)
    on_commit.append(after(job.commit))
    job.commit()
    assert folder.rows() == expected_rows(ROWS, 1, 2)
    assert folder.epochs() == ["1"]


def test_a_zombie_that_commits_an_old_epoch_changes_nothing(folder: DeltaFolder) -> None:
    job = published_epoch(folder)
    old = job.published
    zombie = folder.sink().committer()
    zombie.commit(permit_for(1), old.pre_commits)
    job.run_to(3)
    zombie.commit(permit_for(1), old.pre_commits)
    assert folder.rows() == expected_rows(ROWS, 3, 2)
    assert folder.epochs() == ["1", "2", "3"]


def test_rows_of_another_writer_between_look_and_commit_stay(
    folder: DeltaFolder, on_commit: list[Instead]
) -> None:
    job = published_epoch(folder)
    foreign = pa.table({"row": [-1], "country": ["DE"], "text": [""]}, schema=SCHEMA)
    on_commit.append(after(lambda: write_deltalake(folder.root, foreign, mode="append")))
    job.commit()
    assert folder.rows() == [-1, *expected_rows(ROWS, 1, 2)]


def test_commits_that_others_always_win_end_in_a_conflict(
    folder: DeltaFolder, on_commit: list[Instead]
) -> None:
    job = folder.job(ROWS, commit_attempts_max=3)
    job.publish([job.attempt(subtask).finish() for subtask in range(2)])
    on_commit += [failing(CommitFailedError("first"))] * 3
    with pytest.raises(ConflictError, match="epoch 1 could not be committed") as raised:
        job.commit()
    assert raised.value.action == "nothing is lost: the next start commits the epoch again"
    on_commit += [failing(OSError("no route"))] * 3
    with pytest.raises(OutcomeUnknownError, match="no route"):
        job.commit()
    job.commit()
    assert folder.rows() == expected_rows(ROWS, 1, 2)


def test_a_commit_that_the_store_refuses_is_not_tried_again(
    folder: DeltaFolder, on_commit: list[Instead]
) -> None:
    job = published_epoch(folder)
    on_commit.append(failing(OSError("The operation lacked the necessary privileges to complete")))
    with pytest.raises(InvalidInputError, match="access to the Delta table is refused"):
        job.commit()
    job.commit()
    assert folder.rows() == expected_rows(ROWS, 1, 2)


def test_a_commit_that_another_writer_replaces_is_noticed_and_repeated(
    folder: DeltaFolder, on_commit: list[Instead]
) -> None:
    job = published_epoch(folder)
    on_commit.append(lambda commit: write_deltalake(folder.root, _row(-1), mode="append"))
    with pytest.raises(CorruptionError, match="the commit of epoch 1 was replaced by another writer"):
        job.commit()
    job.commit()
    assert folder.rows() == [-1, *expected_rows(ROWS, 1, 2)]


def test_the_entry_of_the_table_survives_checkpoints_compaction_and_vacuum(folder: DeltaFolder) -> None:
    job = folder.job(ROWS)
    job.run_to(2, finish_files=False)
    table = folder.table()
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    table.create_checkpoint()
    for commit in (folder.root / "_delta_log").glob("*.json"):
        if int(commit.stem) < folder.table().version():
            commit.unlink()
    job.commit()
    assert folder.rows() == expected_rows(ROWS, 2, 2)
    job.run_to(3)
    assert folder.rows() == expected_rows(ROWS, 3, 2)


def test_the_entry_survives_in_a_table_that_lets_entries_expire(folder: DeltaFolder) -> None:
    job = folder.job(ROWS, properties={"delta.setTransactionRetentionDuration": "interval 0 seconds"})
    job.run_to(2, finish_files=False)
    folder.table().create_checkpoint()
    job.commit()
    assert folder.rows() == expected_rows(ROWS, 2, 2)
    assert folder.epochs() == ["1", "2"]


def test_the_table_records_job_sink_and_epoch(folder: DeltaFolder) -> None:
    job = folder.job(ROWS)
    job.state_id = "4f1c"
    job.run_to(2, finish_files=False)
    app_id = f"lakestate/{JOB}/{sink_fingerprint(JOB, SINK, '4f1c')}"
    assert folder.table().transaction_version(app_id) == 2
    assert [each["appId"] for each in folder.actions("txn")] == [app_id, f"{app_id}/content"] * 2


def test_a_job_of_the_same_name_with_another_state_is_another_writer(folder: DeltaFolder) -> None:
    for state_id in ("4f1c", "77b0"):
        job = folder.job(ROWS)
        job.state_id = state_id
        job.run_to(2)
    assert folder.rows() == sorted(2 * expected_rows(ROWS, 2, 2))


def test_an_epoch_with_other_files_under_the_same_number_is_refused(folder: DeltaFolder) -> None:
    folder.job(ROWS).run_to(1)
    copy = folder.job(ROWS)
    copy.ambient.new_id()
    copy.publish([copy.attempt(subtask).finish() for subtask in range(2)])
    with pytest.raises(IncompatibleStateError, match="holds epochs of another run of the job") as raised:
        copy.commit()
    assert raised.value.found == "epoch 1, and not the rows of epoch 1"
    assert folder.rows() == expected_rows(ROWS, 1, 2)


def test_an_epoch_that_finished_no_file_makes_no_commit(folder: DeltaFolder) -> None:
    job = folder.job(ROWS, roll=NEVER)
    job.run_to(3, finish_files=False)
    assert folder.table().version() == 0
    job.run_to(4)
    assert folder.table().version() == 1
    assert folder.rows() == expected_rows(ROWS, 4, 2)
    assert len(folder.actions("add")) == 2


def test_a_table_that_was_created_again_while_the_job_runs_is_noticed(folder: DeltaFolder) -> None:
    job = folder.job(ROWS)
    committer = folder.sink().committer()
    job.publish([job.attempt(subtask).finish() for subtask in range(2)])
    committer.commit(permit_for(1), job.published.pre_commits)
    job.publish([job.attempt(subtask).finish() for subtask in range(2)])
    for commit in (folder.root / "_delta_log").glob("*.json"):
        commit.unlink()
    for number in (1, 2, 3):
        write_deltalake(folder.root, _row(-number), mode="append", commit_properties=CommitProperties())
    with pytest.raises(IncompatibleStateError, match="a file was begun for another table"):
        committer.commit(permit_for(2), job.published.pre_commits)
    assert folder.rows() == [-3, -2, -1]


def _row(number: int) -> pa.Table:
    return pa.table({"row": [number], "country": ["DE"], "text": [""]}, schema=SCHEMA)
