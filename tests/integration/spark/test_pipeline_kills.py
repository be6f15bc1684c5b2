"""Drivers and Python workers killed with SIGKILL at random moments, and drivers that fight for a job.

A driver takes seconds to start, a Python worker does not: of the 15 kills of `make test-full`, 3 take a
driver with its JVM and its workers, and 12 take only a Python worker or Spark's Python daemon, in the
session that all tests share; `make test` has one and three. While one driver runs, the next one warms up.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.spark.pipeline_process import (
    DEADLINE_S,
    FINISH,
    JOB,
    Driver,
    Session,
    TotalsJob,
    own_python_workers,
    totals_pipeline,
)
from tests.support.spark.pipelines import (
    events,
    read_output,
    run_available,
    state_rows,
    wait_for,
    write_input,
)
from tests.support.spark.totals import Totals, totals_after_each

import lakestate as ls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

patient = pytest.mark.timeout(900)
"""Drivers one after the other take several times as long on a machine that is busy otherwise."""

FILE_ROWS = 60
USERS = 20
FILES_AHEAD = 6
EPOCH_S = 0.8
"""About as long as an epoch takes: kills are spread over it."""


class FedJob(TotalsJob):
    """A job whose input continues for as long as the test needs it. Each epoch reads one file."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder)
        self._seed = seed
        self._files = 0
        (folder / "in").mkdir()
        self.feed()

    def feed(self) -> None:
        """Stay ahead of the driver."""
        while self._files < self.newest_epoch() + FILES_AHEAD:
            write_input(self.folder / "in", self._files, self._rows(self._files))
            self._files += 1

    def feed_until(self, driver: Session, reached: Callable[[], bool]) -> None:
        """Wait for a condition while a driver runs, and let it not run out of input."""

        def fed_and_reached() -> bool:
            self.feed()
            return reached()

        driver.wait_for(fed_and_reached)

    def reaches(self, driver: Session, epoch: int) -> None:
        """Wait until an epoch is published."""
        self.feed_until(driver, lambda: self.newest_epoch() >= epoch)

    def expected_rows(self) -> list[tuple[Any, ...]]:
        """The oracle: the totals of every user after every file that has rows of the user."""
        files = (self._rows(number).select(["user", "amount"]) for number in range(self._files))
        return totals_after_each([tuple(row.values()) for row in file.to_pylist()] for file in files)

    def check_result(self) -> None:
        """Output and state are those of the oracle, row by row, and nothing else is visible."""
        expected = self.expected_rows()
        output = [tuple(row.values()) for row in read_output(self.folder / "out")]
        assert sorted(output, key=str) == expected
        backend = ls.ParquetBackend(f"file://{self.folder}/checkpoints", cache_dir=self.folder / "reader")
        state = [tuple(row.values()) for row in state_rows(backend, JOB, "totals", Totals(), "totals")]
        assert state == newest_by_user(expected)

    def _rows(self, number: int) -> Any:
        return events(self._seed * 1000 + number, FILE_ROWS, USERS)


def newest_by_user(totals: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The last of the totals of each user."""
    newest = {row[0]: row for row in sorted(totals, key=lambda row: row[1])}
    return sorted(newest.values(), key=str)


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Any]:
    made: list[FedJob] = []

    def make(seed: int) -> FedJob:
        made.append(FedJob(tmp_path, seed))
        return made[-1]

    yield make
    for job in made:
        job.kill_all()


def kill_a_worker(job: FedJob, driver: Session, choose: random.Random) -> None:
    """Kill the Python daemon or one of its workers within an epoch, and check that the job continues."""
    newest = job.newest_epoch()
    driver.run_on(choose.uniform(0, EPOCH_S))
    driver.wait_for(lambda: bool(driver.python_workers()))
    with suppress(ProcessLookupError):
        os.kill(choose.choice(driver.python_workers()), signal.SIGKILL)
    job.reaches(driver, newest + 2)


def live_and_die(job: FedJob, driver: Driver, choose: random.Random, worker_kills: int) -> None:
    """One life of a driver. Some are so short that they publish nothing."""
    fence, newest = job.fence(), job.newest_epoch()
    driver.go()
    driver.wait_for(lambda: job.fence() != fence)
    if worker_kills or choose.random() < 0.7:
        job.reaches(driver, newest + choose.randint(1, 2))
    for _ in range(worker_kills):
        kill_a_worker(job, driver, choose)
    if choose.random() < 0.5:
        # At the edge of an epoch: its record is there, its commit perhaps not yet.
        job.reaches(driver, job.newest_epoch() + 1)
        driver.run_on(choose.uniform(0, 0.05))
    else:
        driver.run_on(choose.uniform(0, EPOCH_S))
    driver.kill()


def kill_many_times(job: FedJob, seed: int, driver_kills: int, worker_kills: int) -> None:
    choose = random.Random(seed)
    lives = Counter(choose.choices(range(driver_kills), k=worker_kills))
    standby = job.standby()
    for life in range(driver_kills):
        driver, standby = standby, job.standby()
        live_and_die(job, driver, choose, lives[life])
    job.feed()
    standby.go(FINISH)
    assert standby.wait() == 0, standby.said()
    job.check_result()


def kill_workers(job: FedJob, spark: SparkSession, kills: int) -> None:
    """Run a job in this process, and kill its Python workers one after the other."""
    choose = random.Random(2)
    pipeline = totals_pipeline(spark, job.folder, job.folder / "cache")
    query = pipeline.start()

    def reaches(epoch: int) -> None:
        def fed_and_reached() -> bool:
            job.feed()
            return job.newest_epoch() >= epoch

        wait_for(fed_and_reached, query, DEADLINE_S)

    reaches(1)
    for _ in range(kills):
        query.awaitTermination(choose.uniform(0, EPOCH_S / 2))
        newest = job.newest_epoch()
        wait_for(lambda: bool(own_python_workers()), query)
        with suppress(ProcessLookupError):
            os.kill(choose.choice(own_python_workers()), signal.SIGKILL)
        # A task may fail four times: a whole epoch lies between two kills.
        reaches(newest + 2)
    query.stop()
    job.feed()
    run_available(totals_pipeline(spark, job.folder, job.folder / "cache"), finish_files=True)
    job.check_result()


@patient
def test_no_row_is_lost_or_there_twice_after_a_killed_driver(jobs: Any) -> None:
    kill_many_times(jobs(0), 0, driver_kills=1, worker_kills=0)


@pytest.mark.full
@patient
def test_no_row_is_lost_or_there_twice_after_three_killed_drivers(jobs: Any) -> None:
    kill_many_times(jobs(0), 0, driver_kills=3, worker_kills=0)


@patient
def test_no_row_is_lost_or_there_twice_after_three_killed_workers(jobs: Any, spark: SparkSession) -> None:
    kill_workers(jobs(2), spark, kills=3)


@pytest.mark.full
@patient
def test_no_row_is_lost_or_there_twice_after_twelve_killed_workers(jobs: Any, spark: SparkSession) -> None:
    kill_workers(jobs(2), spark, kills=12)


@pytest.mark.soak
def test_no_row_is_lost_or_there_twice_for_as_long_as_it_is_killed(tmp_path: Path) -> None:
    ends = time.monotonic() + float(os.environ.get("SOAK_MINUTES", "10")) * 60
    seeds = [int(seed) for seed in os.environ.get("SEEDS", "").split(",") if seed]
    while seeds or time.monotonic() < ends:
        seed = seeds.pop() if seeds else random.SystemRandom().randrange(10**6)
        print(f"seed {seed}")
        folder = tmp_path / str(seed)
        folder.mkdir()
        job = FedJob(folder, seed)
        try:
            kill_many_times(job, seed, driver_kills=10, worker_kills=15)
        finally:
            job.kill_all()


def generations(job: FedJob) -> list[int]:
    """The generation of every epoch record, in order of epoch."""
    records = sorted((job.root / "epochs").glob("*.json"))
    return [int(json.loads(record.read_bytes())["generation"]) for record in records]


def stop_in_an_epoch(job: FedJob, driver: Session) -> None:
    """Stop a driver that has written something of an epoch which is not published."""

    def is_stopped() -> bool:
        if not job.has_objects_of(job.newest_epoch() + 1):
            return False
        driver.signal(signal.SIGSTOP)
        if not job.has_a_store_lock():
            return True
        driver.signal(signal.SIGCONT)
        return False

    job.feed_until(driver, is_stopped)


@pytest.mark.full
@patient
def test_a_driver_that_another_one_overtakes_changes_nothing_awake_or_asleep(jobs: Any) -> None:
    job: FedJob = jobs(3)
    first, second = job.start(), job.standby()
    job.reaches(first, 2)
    fence = job.fence()
    second.go()
    # The first has input left when it is fenced: an idle driver would not notice.
    job.feed_until(first, lambda: job.fence() != fence)
    assert first.wait() != 0
    assert "FencedError" in first.said()

    third = job.standby()
    job.reaches(second, job.newest_epoch() + 1)
    stop_in_an_epoch(job, second)
    third.go(FINISH)
    assert third.wait() == 0, third.said()
    job.check_result()
    before = dict(job.objects())
    second.signal(signal.SIGCONT)
    assert second.wait() != 0
    assert "FencedError" in second.said()
    after = dict(job.objects())
    assert {name: after.get(name) for name in before} == before
    # The files of the epoch that it had begun have no record: no reader sees them.
    assert [name for name in after if name not in before and "/checkpoints/" not in name] == []
    assert generations(job) == sorted(generations(job))
    job.check_result()
