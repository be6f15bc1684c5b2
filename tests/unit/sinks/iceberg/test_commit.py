"""Each epoch is in an Iceberg table exactly once, whatever happens to its commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    ServiceUnavailableError,
)
from sqlalchemy.exc import OperationalError
from tests.support.sinks.iceberg_job import TABLE, Warehouse
from tests.support.sinks.sink_job import (
    JOB,
    SCHEMA,
    Published,
    SinkJob,
    expected_rows,
    numbered_rows,
    permit_for,
)

from lakestate.errors import (
    ConflictError,
    IncompatibleStateError,
    InvalidInputError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from lakestate.sinks.iceberg import catalog_calls as iceberg_answers
from lakestate.sinks.iceberg.commits.change import TableChange
from lakestate.testing.faults import SimulatedCrash

ROWS = numbered_rows(20)
LOST = OperationalError("UPDATE", {}, Exception("database is locked"))

Commit = Callable[..., Any]


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    monkeypatch.setattr(iceberg_answers, "_WAIT_FIRST_S", 0)
    return Warehouse(tmp_path / "warehouse")


@pytest.fixture
def on_commit(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Commit]]:
    """What the catalog does instead of its next commits; each gets the commit itself."""
    instead: list[Commit] = []
    catalog = warehouse.catalog.load()
    commit_table = catalog.commit_table

    def commit(*args: Any) -> Any:
        if not instead:
            return commit_table(*args)
        return instead.pop(0)(lambda: commit_table(*args))

    monkeypatch.setattr(catalog, "commit_table", commit)
    yield instead
    assert not instead, "the catalog was to be asked more often"


def published_epoch(warehouse: Warehouse) -> SinkJob:
    """A job whose first epoch is published and not committed."""
    job = warehouse.job(ROWS)
    job.publish([job.attempt(subtask).finish() for subtask in range(2)])
    return job


def losing_the_answer(error: Exception) -> Commit:
    def act(commit: Commit) -> None:
        commit()
        raise error

    return act


def failing(error: Exception) -> Commit:
    def act(commit: Commit) -> None:
        raise error

    return act


def after(first: Callable[[], Any]) -> Commit:
    """Somebody else does something between our look at the table and our commit."""

    def act(commit: Commit) -> Any:
        first()
        return commit()

    return act


ERRORS = [
    CommitStateUnknownException("?"),
    CommitFailedException("409"),
    ServiceUnavailableError("503"),
    LOST,
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_commit_whose_answer_is_lost_is_not_repeated(
    warehouse: Warehouse, on_commit: list[Commit], error: Exception
) -> None:
    job = published_epoch(warehouse)
    on_commit.append(losing_the_answer(error))
    job.commit()
    assert warehouse.rows() == expected_rows(ROWS, 1, 2)
    assert warehouse.epochs() == ["1"]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_commit_that_did_not_happen_is_tried_again(
    warehouse: Warehouse, on_commit: list[Commit], error: Exception
) -> None:
    job = published_epoch(warehouse)
    on_commit += [failing(error), failing(error)]
    job.commit()
    assert warehouse.rows() == expected_rows(ROWS, 1, 2)
    assert warehouse.epochs() == ["1"]


def test_a_replayed_epoch_changes_nothing(warehouse: Warehouse) -> None:
    job = published_epoch(warehouse)
    job.commit()
    before = warehouse.table().metadata
    job.commit()
    assert warehouse.table().metadata == before


def test_a_concurrent_append_of_another_writer_costs_one_more_try(
    warehouse: Warehouse, on_commit: list[Commit]
) -> None:
    job = published_epoch(warehouse)
    other = pa.table({"row": [-1], "country": ["XX"], "text": [""]}, SCHEMA)
    on_commit.append(after(lambda: warehouse.table().append(other)))
    job.commit()
    assert warehouse.rows() == [-1, *expected_rows(ROWS, 1, 2)]


def test_of_two_drivers_that_commit_an_epoch_one_does(warehouse: Warehouse, on_commit: list[Commit]) -> None:
    job = published_epoch(warehouse)
    on_commit.append(after(job.commit))
    job.commit()
    assert warehouse.rows() == expected_rows(ROWS, 1, 2)
    assert warehouse.epochs() == ["1"]


def test_a_zombie_that_looked_before_its_successor_went_on_changes_nothing(
    warehouse: Warehouse, on_commit: list[Commit]
) -> None:
    job = published_epoch(warehouse)
    zombie = replace(job, published=job.published)

    def successor() -> None:
        job.commit()
        job.run_to(3)

    on_commit.append(after(successor))
    zombie.commit()
    assert warehouse.rows() == expected_rows(ROWS, 3, 2)
    assert warehouse.epochs() == ["1", "2", "3"]


def test_a_zombie_that_commits_an_old_epoch_changes_nothing(warehouse: Warehouse) -> None:
    job, zombie = job_with_zombie(warehouse)
    before = warehouse.table().metadata
    zombie.commit()
    assert warehouse.table().metadata == before
    assert warehouse.rows() == expected_rows(ROWS, job.published.epoch, 2)


def test_after_the_expiry_of_snapshots_an_old_epoch_is_still_known(warehouse: Warehouse) -> None:
    job, zombie = job_with_zombie(warehouse)
    last = job.published
    expire_all_but_the_last_snapshot(warehouse)
    zombie.commit()
    job.published = last
    job.commit()
    assert warehouse.epochs() == ["3"]
    assert warehouse.rows() == expected_rows(ROWS, 3, 2)


def test_after_the_expiry_of_snapshots_a_job_continues(warehouse: Warehouse) -> None:
    job, _ = job_with_zombie(warehouse)
    expire_all_but_the_last_snapshot(warehouse)
    job.run_to(5)
    assert warehouse.rows() == expected_rows(ROWS, 5, 2)
    assert warehouse.epochs() == ["3", "4", "5"]


def test_without_the_property_the_snapshots_say_what_is_committed(warehouse: Warehouse) -> None:
    job, zombie = job_with_zombie(warehouse)
    names = [name for name in warehouse.table().properties if name.startswith("lakestate.")]
    warehouse.table().transaction().remove_properties(*names).commit_transaction()
    zombie.commit()
    job.commit()
    assert warehouse.rows() == expected_rows(ROWS, 3, 2)


def test_a_job_that_forgot_its_epochs_is_stopped_and_not_skipped(warehouse: Warehouse) -> None:
    job, _ = job_with_zombie(warehouse)
    job.published = Published()
    job.publish([job.attempt(subtask).finish() for subtask in range(2)])
    with pytest.raises(IncompatibleStateError, match="an earlier job with the id"):
        job.commit()
    expire_all_but_the_last_snapshot(warehouse)
    with pytest.raises(IncompatibleStateError, match="an earlier job with the id"):
        job.commit()


def test_a_job_that_forgot_its_epochs_is_stopped_as_long_as_a_snapshot_knows_them(
    warehouse: Warehouse,
) -> None:
    job, _ = job_with_zombie(warehouse)
    job.published = Published()
    job.publish([job.attempt(subtask).finish() for subtask in range(2)])
    expire_all_but_the_last_snapshot(warehouse)
    names = [name for name in warehouse.table().properties if name.startswith("lakestate.")]
    warehouse.table().transaction().remove_properties(*names).commit_transaction()
    with pytest.raises(IncompatibleStateError, match="after all snapshots of the old job have been expired"):
        job.commit()
    warehouse.table().append(pa.table({"row": [-1], "country": ["XX"], "text": [""]}, SCHEMA))
    expire_all_but_the_last_snapshot(warehouse)
    job.commit()
    assert warehouse.rows() == sorted([-1, *expected_rows(ROWS, 3, 2), *expected_rows(ROWS, 1, 2)])


def test_a_crash_between_whole_files_and_the_append_loses_nothing(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = published_epoch(warehouse)
    with monkeypatch.context() as patched:
        patched.setattr(TableChange, "commit", lambda append: _crash())
        with pytest.raises(SimulatedCrash):
            job.commit()
    assert warehouse.rows() == []
    job.commit()
    job.clean_up()
    assert warehouse.rows() == expected_rows(ROWS, 1, 2)


@pytest.mark.parametrize("moment", [failing, losing_the_answer])
@pytest.mark.parametrize("number", range(3))
def test_a_crash_around_any_commit_loses_and_repeats_nothing(
    warehouse: Warehouse, on_commit: list[Commit], moment: Callable[[Exception], Commit], number: int
) -> None:
    on_commit += [after(lambda: None)] * number
    on_commit.append(moment(SimulatedCrash("driver")))
    job = warehouse.job(ROWS)
    job.run_to(3)
    assert job.failures == 1
    assert warehouse.rows() == expected_rows(ROWS, 3, 2)
    assert warehouse.epochs() == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (CommitFailedException("busy"), ConflictError),
        (CommitStateUnknownException("?"), OutcomeUnknownError),
        (ForbiddenError("no"), InvalidInputError),
    ],
)
def test_after_too_many_failures_the_caller_gets_the_error_and_can_try_again(
    warehouse: Warehouse, on_commit: list[Commit], error: Exception, expected: type[Exception]
) -> None:
    job = published_epoch(warehouse)
    sink = warehouse.sink(commit_attempts_max=2)
    on_commit += [failing(error)] * (1 if expected is InvalidInputError else 2)
    with pytest.raises(expected, match=TABLE):
        sink.committer().commit(permit_for(1), job.published.pre_commits)
    job.commit()
    assert warehouse.rows() == expected_rows(ROWS, 1, 2)


def test_a_catalog_that_does_not_answer_is_named(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = published_epoch(warehouse)
    monkeypatch.setattr(warehouse.catalog.load(), "load_table", lambda name: failing(LOST)(print))
    with pytest.raises(StorageUnavailableError, match=TABLE):
        job.commit()


def test_tries_that_failed_leave_no_manifests(warehouse: Warehouse, on_commit: list[Commit]) -> None:
    job = published_epoch(warehouse)
    on_commit += [failing(CommitFailedException("busy"))] * 3
    job.commit()
    found = sorted(path.name.split("-")[0] for path in warehouse.root.rglob("*.avro"))
    assert len(found) == 2, "one manifest and one list"


def test_the_snapshot_and_the_table_say_which_epoch_it_was(warehouse: Warehouse) -> None:
    job = published_epoch(warehouse)
    job.commit()
    table = warehouse.table()
    summary = table.current_snapshot().summary.additional_properties
    name = f"lakestate.committed.{JOB}.{summary['lakestate.sink']}"
    assert (summary["lakestate.job-id"], summary["lakestate.epoch"]) == (JOB, "1")
    assert (table.properties[name], table.properties[f"{name}.files"]) == ("1", summary["lakestate.files"])


def test_a_table_that_was_dropped_and_made_again_is_not_taken_for_the_old(warehouse: Warehouse) -> None:
    job = published_epoch(warehouse)
    warehouse.catalog.load().drop_table(TABLE)
    warehouse.sink().check(SCHEMA)
    with pytest.raises(IncompatibleStateError, match="another table"):
        job.commit()


def job_with_zombie(warehouse: Warehouse) -> tuple[SinkJob, SinkJob]:
    """A job after three epochs, and a driver that still has the first one in its hands."""
    job = published_epoch(warehouse)
    zombie = replace(job, published=job.published)
    job.commit()
    job.run_to(3, finish_files=False)
    return job, zombie


def expire_all_but_the_last_snapshot(warehouse: Warehouse) -> None:
    table = warehouse.table()
    *old, _ = (each.snapshot_id for each in table.metadata.snapshots)
    table.maintenance.expire_snapshots().by_ids(old).commit()


def _crash() -> None:
    raise SimulatedCrash("driver")
