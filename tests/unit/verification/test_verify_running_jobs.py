"""What happens while a verification runs is not damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.corruption.job import JOB, CorruptionJob, report_of
from tests.support.jobs.table_job import TableJob

import lakestate as ls
from lakestate.coordinator.epoch_plan import Ending
from lakestate.errors import StorageUnavailableError
from lakestate.storage.parallel import run_sequentially
from lakestate.verification import job as verification
from lakestate.verification.report import Finding


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something in the middle of the next verification, when all references are read."""
    check = verification.check_data_file

    def disturbed(*arguments: Any) -> None:
        monkeypatch.setattr(verification, "check_data_file", check)
        act()
        check(*arguments)

    monkeypatch.setattr(verification, "check_data_file", disturbed)


def test_what_retention_deletes_meanwhile_is_not_damage(
    job: CorruptionJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def collect() -> None:
        client = job.state_client
        client.delete([f"{JOB}/tags/kept-2.json", f"{JOB}/tags/kept-4.json", f"{JOB}/tags/moved.json"])
        backend = ls.ParquetBackend(job.backend._config)
        backend.claim(JOB)
        backend.cleanup_checkpoint(JOB, 5)

    meanwhile(monkeypatch, collect)
    with run_sequentially():
        report = report_of(job)
    assert report.is_clean, str(report)
    assert report.restorable == (5,)


def test_the_first_retention_of_a_job_is_not_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = TableJob([ls.GlobalKeyedTable("t", key=int, value=int)])
    for number in range(4):
        tables.managers[0].global_keyed("t").insert(number, number)
        tables.checkpoint()
    meanwhile(monkeypatch, lambda: tables.backend.cleanup_checkpoint("job", 4))
    with run_sequentially():
        report = ls.verify(tables.backend, "job")
    assert report.is_clean, str(report)
    assert report.restorable == (4,)
    tables.close()


def test_output_that_is_finished_meanwhile_is_not_damage(
    job: CorruptionJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch that was newest had files open; the next one finishes and commits them."""

    def go_on() -> None:
        driver = job.driver()
        driver.start()
        job.run_epoch(driver, ending=Ending.END_OF_STREAM)
        driver.stop()

    findings = verification.SinkOutput.findings

    def late(self: Any) -> Iterator[Finding]:
        monkeypatch.setattr(verification.SinkOutput, "findings", findings)
        go_on()
        return findings(self)

    monkeypatch.setattr(verification.SinkOutput, "findings", late)
    with run_sequentially():
        report = report_of(job)
    assert report.is_clean, str(report)
    assert report.dangling == ()


def test_a_store_that_does_not_answer_is_not_a_finding(
    job: CorruptionJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: object) -> None:
        raise StorageUnavailableError("the store did not answer")

    monkeypatch.setattr(type(job.backend.objects(JOB).store), "get", unavailable)
    with pytest.raises(StorageUnavailableError):
        report_of(job)
