"""Calls of a catalog that does not answer are repeated, and what it raises becomes an error of ours."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.exceptions import ForbiddenError, ServiceUnavailableError
from sqlalchemy.exc import OperationalError
from tests.support.sinks.iceberg_job import TABLE, Warehouse
from tests.support.sinks.sink_job import SCHEMA, SinkJob, expected_rows, numbered_rows

from lakestate.errors import InvalidInputError, OutcomeUnknownError, StorageUnavailableError
from lakestate.sinks.iceberg import catalog as iceberg_catalog
from lakestate.sinks.iceberg import catalog_calls as iceberg_answers
from lakestate.sinks.iceberg.catalog import IcebergCatalog
from lakestate.sinks.iceberg.sink import IcebergSink

ROWS = numbered_rows(20)
LOCKED = OperationalError("SELECT", {}, Exception("database is locked"))
AWAY = [LOCKED, ServiceUnavailableError("503"), ConnectionError("refused")]

Asker = Callable[[Warehouse, SinkJob], Any]
ASKERS: dict[str, Asker] = {
    "start": lambda warehouse, job: warehouse.sink(commit_attempts_max=3).check(SCHEMA),
    "writer": lambda warehouse, job: job.attempt(0),
    "commit": lambda warehouse, job: job.commit(),
    "clean up": lambda warehouse, job: job.clean_up(),
    "verify": lambda warehouse, job: warehouse.sink(commit_attempts_max=3).file_sink(),
}


class Flaky:
    """A method of the catalog that raises some errors first."""

    def __init__(self, real: Callable[..., Any]) -> None:
        self.real = real
        self.errors: list[Exception] = []
        self.answers_are_lost = False

    def __call__(self, *args: Any, **settings: Any) -> Any:
        if not self.errors:
            return self.real(*args, **settings)
        if self.answers_are_lost:
            self.real(*args, **settings)
        raise self.errors.pop(0)


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    monkeypatch.setattr(iceberg_answers, "_WAIT_FIRST_S", 0)
    return Warehouse(tmp_path / "warehouse")


@pytest.fixture
def job(warehouse: Warehouse) -> SinkJob:
    """A job whose first epoch is published and not committed."""
    job = warehouse.job(ROWS, commit_attempts_max=3)
    job.publish([job.attempt(subtask).finish() for subtask in range(2)])
    return job


def flaky(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, method: str) -> Flaky:
    catalog = warehouse.catalog.load()
    made = Flaky(getattr(catalog, method))
    monkeypatch.setattr(catalog, method, made)
    return made


@pytest.mark.parametrize("error", AWAY, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("asker", ASKERS)
def test_every_call_is_repeated(
    warehouse: Warehouse, job: SinkJob, monkeypatch: pytest.MonkeyPatch, asker: str, error: Exception
) -> None:
    catalog = flaky(warehouse, monkeypatch, "load_table")
    catalog.errors = [error, error]
    ASKERS[asker](warehouse, job)
    assert catalog.errors == []


@pytest.mark.parametrize("asker", ["start", "writer", "verify"])
def test_a_catalog_that_stays_away_is_named_after_the_last_question(
    warehouse: Warehouse, job: SinkJob, monkeypatch: pytest.MonkeyPatch, asker: str
) -> None:
    catalog = flaky(warehouse, monkeypatch, "load_table")
    catalog.errors = [LOCKED] * 5
    with pytest.raises(StorageUnavailableError, match=f"does not answer: {TABLE}.*locked"):
        ASKERS[asker](warehouse, job)
    assert len(catalog.errors) == 2


@pytest.mark.parametrize("asker", ["start", "writer", "verify"])
def test_a_catalog_that_refuses_is_asked_once(
    warehouse: Warehouse, job: SinkJob, monkeypatch: pytest.MonkeyPatch, asker: str
) -> None:
    catalog = flaky(warehouse, monkeypatch, "load_table")
    catalog.errors = [ForbiddenError("no")] * 2
    with pytest.raises(InvalidInputError, match=f"catalog refuses the call: {TABLE}"):
        ASKERS[asker](warehouse, job)
    assert len(catalog.errors) == 1


@pytest.mark.slow
@pytest.mark.parametrize("lock", ["EXCLUSIVE", "IMMEDIATE"])
@pytest.mark.parametrize("asker", ["start", "writer", "commit"])
def test_an_embedded_catalog_that_is_locked_is_waited_for_and_not_for_long(
    warehouse: Warehouse, job: SinkJob, asker: str, lock: str
) -> None:
    with closing(sqlite3.connect(warehouse.root / "catalog.db", isolation_level=None)) as holder:
        holder.execute(f"BEGIN {lock}")
        started_s = time.monotonic()
        # A reader is only stopped by an exclusive lock.
        is_stopped = lock == "EXCLUSIVE" or asker == "commit"
        errors = (StorageUnavailableError, OutcomeUnknownError)
        with pytest.raises(errors, match="database is locked") if is_stopped else nullcontext():
            ASKERS[asker](warehouse, job)
        waited_s = time.monotonic() - started_s
    # Three tries of half a second each.
    assert (1.4 if is_stopped else 0.0) < waited_s < 4.0
    ASKERS[asker](warehouse, job)


def test_a_locked_catalog_is_given_up_after_about_twenty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    def ask() -> None:
        # Opening the catalog waits for the lock twice.
        sleep(2 * iceberg_catalog._LOCK_TIMEOUT_S)
        raise LOCKED

    monkeypatch.setattr(iceberg_answers, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    attempts = IcebergSink(TABLE, catalog="file:///data").commit_attempts_max
    with pytest.raises(StorageUnavailableError):
        iceberg_answers.call_catalog(ask, TABLE, attempts)
    assert 15 < clock[0] < 30


@pytest.mark.parametrize("lost", [False, True], ids=["not done", "answer lost"])
def test_a_table_is_created_though_the_catalog_fails(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    catalog = flaky(warehouse, monkeypatch, "create_table")
    catalog.errors, catalog.answers_are_lost = [LOCKED], lost
    warehouse.job(ROWS).run_to(1)
    assert catalog.errors == []
    assert warehouse.rows() == expected_rows(ROWS, 1, 2)


def test_a_catalog_that_cannot_be_opened_stops_the_start_with_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(iceberg_answers, "_WAIT_FIRST_S", 0)
    sink = IcebergSink(TABLE, catalog=IcebergCatalog.rest("http://127.0.0.1:1"), commit_attempts_max=2)
    with pytest.raises(StorageUnavailableError, match=TABLE):
        sink.check(SCHEMA)
    sink.committer()


def test_properties_that_make_no_catalog_are_refused_without_showing_them() -> None:
    catalog = IcebergCatalog("prod", {"type": "nonsense", "uri": "http://x", "token": "s3cr3t"})
    with pytest.raises(InvalidInputError, match="nonsense") as error:
        IcebergSink(TABLE, catalog=catalog).check(SCHEMA)
    assert "s3cr3t" not in str(error.value)
