"""What a verification says about copies of open files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.corruption.job import CorruptionJob, report_of

from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.files.snapshots import STORE_FOLDER
from lakestate.verification import DanglingStatus, Problem

KIND = "snapshot of an open file"


class SnapshotJob(CorruptionJob):
    @property
    def sinks(self) -> dict[str, FileSink]:
        return {name: replace(sink, snapshot_open_files=True) for name, sink in super().sinks.items()}


@pytest.fixture
def job(tmp_path: Path) -> SnapshotJob:
    job = SnapshotJob(tmp_path)
    driver = job.driver()
    driver.start()
    for _ in range(3):
        job.run_epoch(driver)
    driver.stop()
    return job


def local_copy(job: SnapshotJob) -> Path:
    [copy] = (job.local_root / ".lakestate/snapshots").rglob("_snapshot=*")
    return copy


def test_a_job_with_copies_is_sound_and_nothing_of_it_dangles(job: SnapshotJob) -> None:
    report = report_of(job)
    assert (report.is_clean, report.findings, report.dangling) == (True, (), ())


def test_a_local_copy_that_is_damaged_is_named_and_the_job_can_be_restored(job: SnapshotJob) -> None:
    copy = local_copy(job)
    content = copy.read_bytes()
    damaged = {
        Problem.SIZE: content[:-1],
        Problem.CHECKSUM: content[:-1] + bytes([content[-1] ^ 1]),
        Problem.MISSING: None,
    }
    for problem, found in damaged.items():
        copy.unlink()
        if found is not None:
            copy.write_bytes(found)
        else:
            assert not copy.exists()
        report = report_of(job)
        [finding] = report.findings
        assert (finding.object_name, finding.kind, finding.problem) == (str(copy), KIND, problem)
        assert "can be read only by Lakestate until it is written again" in finding.consequence
        assert report.not_restorable == ()


def test_a_copy_that_is_missing_from_a_store_is_named(job: SnapshotJob) -> None:
    store = job.sinks["out"].store
    [first, *_] = [info.path for info in store.list(f"{STORE_FOLDER}/")]
    store.delete_many([first])
    [finding] = report_of(job).findings
    assert (finding.object_name, finding.kind, finding.problem) == (
        f"{store.url}/{first}",
        KIND,
        Problem.MISSING,
    )


def test_copies_that_nothing_refers_to_are_told_by_what_clean_up_does(job: SnapshotJob) -> None:
    copy = local_copy(job)
    dead = copy.with_name(copy.name.replace("-0000000003-", "-0000000002-"))
    coming = copy.with_name(copy.name.replace("-0000000003-", "-0000000004-"))
    for each in (dead, coming):
        each.write_bytes(b"x")
    found = {each.object_name: each.status for each in report_of(job).dangling}
    assert found == {str(dead): DanglingStatus.DEAD, str(coming): DanglingStatus.IN_FLIGHT}
