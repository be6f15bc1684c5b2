"""What a driver learns when it takes over a job: what the drivers before it can still publish."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.coordinator.test_job_driver import Engine, Job, run

import lakestate as ls
from lakestate.coordinator import publish
from lakestate.coordinator.epoch_progress import EpochFinished, StartAgain
from lakestate.coordinator.upkeep import Takeover
from lakestate.protocol.values import Epoch
from lakestate.testing.faults import SimulatedCrash


@pytest.fixture
def job() -> Job:
    return Job()


def test_a_driver_is_told_what_its_predecessor_can_still_publish(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, seen = Engine(job.backend()), []
    run(job.driver(), engine)
    late = stop_before_the_record(job, engine, monkeypatch)

    def look(found: Takeover) -> None:
        assert found.newest is not None
        pending = [(each.epoch, each.generation) for each in found.pending()]
        seen.append((found.newest.epoch, found.claim.generation, pending))

    driver = job.driver(take_over=look)
    assert seen == [(1, 3, [(2, 2)])]
    late()
    assert isinstance(driver.run_epoch(Epoch(2), engine), StartAgain)
    run(driver, engine)
    assert job.counts() == {"of 0": 3, "of 1": 3}


def stop_before_the_record(job: Job, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Callable[[], object]:
    """A driver that has read the fence and is then stopped; it can be let go on."""
    create_record, stopped = publish._create_record, []

    def stop(*arguments: Any) -> None:
        stopped.append(arguments)
        raise SimulatedCrash("before the record of the epoch")

    first = job.driver()
    with monkeypatch.context() as patched:
        patched.setattr(publish, "_create_record", stop)
        with pytest.raises(SimulatedCrash):
            first.run_epoch(Epoch(2), engine)
    return lambda: create_record(*stopped[0])


def test_a_takeover_that_fails_is_reported_and_the_job_starts(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(found: Takeover) -> None:
        raise ls.StorageUnavailableError("the sink's disk is away")

    with caplog.at_level(logging.WARNING, "lakestate.upkeep"):
        driver = job.driver(take_over=broken)
    assert "clean-up after failed starts of job job failed" in caplog.text
    done = driver.run_epoch(driver.next_epoch(), Engine(job.backend()))
    assert isinstance(done, EpochFinished)
    assert done.progress.upkeep_failures == {"clean_up": 1}


def test_a_manifest_that_cannot_be_read_is_not_passed_over(job: Job) -> None:
    job.backend().objects("job").store.put("job/checkpoints/1/manifest.pb", b"torn")
    seen: list[str] = []

    def look(found: Takeover) -> None:
        with pytest.raises(ls.CorruptionError) as error:
            found.pending()
        seen.append(str(error.value.object_name))

    job.driver(take_over=look)
    assert seen == [f"{job.url}/job/checkpoints/1/manifest.pb"]
