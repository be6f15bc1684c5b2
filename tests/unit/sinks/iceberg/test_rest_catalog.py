"""An Iceberg sink on a REST catalog, over HTTP: answers are lost, refused and late; no row is, or twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from pyiceberg.table import Table
from tests.support.servers.rest_catalog import LOST_ANSWER, RestCatalogServer, rest_catalog
from tests.support.sinks.iceberg_job import EVERY_EPOCH, TABLE
from tests.support.sinks.sink_job import SinkJob, expected_rows, numbered_rows

import lakestate as ls
from lakestate.sinks.iceberg.catalog import IcebergCatalog
from lakestate.sinks.iceberg.sink import IcebergSink

# A server of its own for each test.
pytestmark = pytest.mark.slow

ROWS = numbered_rows(20)
EPOCHS = 3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestCatalogServer]:
    with rest_catalog(tmp_path) as server:
        yield server


def job_on(server: RestCatalogServer) -> SinkJob:
    sink = IcebergSink(TABLE, catalog=IcebergCatalog.rest(server.uri), roll=EVERY_EPOCH)
    return SinkJob(lambda: sink, ROWS)  # type: ignore[arg-type, return-value]


def loaded(server: RestCatalogServer) -> Table:
    return IcebergCatalog.rest(server.uri).load().load_table(TABLE)


def numbers(server: RestCatalogServer) -> list[int]:
    return sorted(loaded(server).scan(selected_fields=("row",)).to_arrow()["row"].to_pylist())


def test_every_epoch_is_one_commit(server: RestCatalogServer) -> None:
    job_on(server).run_to(EPOCHS)
    assert numbers(server) == expected_rows(ROWS, EPOCHS, 2)
    assert server.commits == EPOCHS
    assert len(loaded(server).metadata.snapshots) == EPOCHS


def test_another_reader_than_pyiceberg_reads_the_table(
    server: RestCatalogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    job_on(server).run_to(EPOCHS)
    found = pl.scan_iceberg(loaded(server), reader_override="native").select("row").collect()
    assert sorted(found["row"].to_list()) == expected_rows(ROWS, EPOCHS, 2)


@pytest.mark.parametrize("fault", [LOST_ANSWER, 409, 429, 500, 502, 503, 504], ids=lambda fault: str(fault))
def test_a_commit_that_goes_wrong_is_made_once(server: RestCatalogServer, fault: str | int) -> None:
    server.faults = [fault, fault]
    job = job_on(server)
    job.run_to(EPOCHS)
    assert (server.faults, job.failures) == ([], 0)
    assert numbers(server) == expected_rows(ROWS, EPOCHS, 2)
    assert server.commits == EPOCHS


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_refusal_is_raised_at_once_and_nothing_is_lost(server: RestCatalogServer, status: int) -> None:
    job = job_on(server)
    job.publish(job.attempt(subtask).finish() for subtask in range(job.parallelism))
    # pyiceberg renews its token after a 401 and asks once more.
    server.faults = [status] * (2 if status == 401 else 1)
    with pytest.raises(ls.InvalidInputError, match=f"the Iceberg catalog refuses.*{TABLE}"):
        job.commit()
    assert (server.faults, server.commits) == ([], 0)
    job.commit()
    job.run_to(EPOCHS)
    assert numbers(server) == expected_rows(ROWS, EPOCHS, 2)
