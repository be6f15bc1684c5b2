"""A pipeline on a real S3 server whose processes are killed at random, and the expected result.

One `ProcessSoak` is one job from its first row to its last: drivers with their JVM and Python workers
are killed −9, so are single Python workers, and so is the S3 server, which comes back on the same data.
What is killed, and how long after what, comes from the seed; where that hits, from the machine.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.support.soak.soak_job import ROWS_PER_EPOCH, STORE, NotedTotals, note
from tests.support.spark.pipeline_process import JOB, Session
from tests.support.spark.pipelines import state_rows
from tests.support.spark.totals import bids_of, totals_after_each

import lakestate as ls
from lakestate.config import RetryPolicy, StoreConfig
from lakestate.coordinator.retention.retain import read_references
from lakestate.errors import StorageUnavailableError
from lakestate.storage import open_store
from lakestate.testing.auctions import AuctionHouse
from lakestate.testing.s3_server import S3Server

DEADLINE_S = 300
"""A driver starts in seconds, and in minutes on a machine that is busy with other things."""
EPOCH_S = 1.2
"""About as long as an epoch takes: kills are spread over it."""
OUTAGE_S = 9.0
"""A long outage; drivers give up after 6 s without an answer to one call."""
LAST_EPOCHS = 3
"""Epochs of the last driver, which is not killed."""

QUICK = RetryPolicy(deadline_ms=500, attempt_timeout_ms=500)
_ENDED_BY = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception))\b", re.MULTILINE)


class Victim(Enum):
    """What is killed."""

    DRIVER = "driver with JVM and workers"
    WORKER = "Python worker"
    SERVER = "S3 server"


SHARES = {Victim.DRIVER: 15, Victim.WORKER: 50, Victim.SERVER: 35}

GAVE_UP = frozenset({"StorageUnavailableError", "OutcomeUnknownError"})
"""Why a driver may end by itself: the store was away for too long."""

_WORKER_LOST = re.compile(r"Python worker (?:exited unexpectedly|failed to connect)|EOFException|Broken pipe")
"""Spark's own reason to give up a query: a Python process that it does not start again was killed."""


@dataclass
class SoakReport:
    """What one job went through."""

    seed: int
    kills: Counter[Victim] = field(default_factory=Counter)
    gave_up: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    epochs: int = 0
    rows: int = 0
    output_rows: int = 0
    output_files: int = 0
    uploads_seen: int = 0
    duration_s: float = 0.0
    trace: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} × {victim.value}" for victim, count in _named(self.kills))
        gave_up = ", ".join(f"{count} × {why}" for why, count in sorted(self.gave_up.items())) or "none"
        return (
            f"seed {self.seed}: {self.kills.total()} kills ({kills}), {self.starts} drivers started, "
            f"ended by themselves: {gave_up}, {self.epochs} epochs, {self.rows:,} rows in, "
            f"{self.output_rows:,} rows out in {self.output_files} files, "
            f"open uploads seen at kills: {self.uploads_seen}, {self.duration_s:.0f} s"
        )


def _named(kills: Counter[Victim]) -> list[tuple[Victim, int]]:
    return sorted(kills.items(), key=lambda item: item[0].value)


class ProcessSoak:
    """One job that is killed again and again. Always call `close`."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.report = SoakReport(seed)
        self._folder = folder
        self._choose = random.Random(seed)
        self._server = S3Server()
        self._server.start()
        self._config = self._server.store_config(f"soak-{seed}")
        # Short deadlines, so that a check fails soon while the server is down.
        self._store = open_store(StoreConfig(self._config.url, self._config.options, QUICK))
        self._driver: Session | None = None
        self._drivers: list[Session] = []
        self._seen = 0
        self._started_s = time.monotonic()

    def close(self) -> None:
        for driver in self._drivers:
            driver.kill()
        self._server.stop()

    def run(self, kills: int, deadline_s: float | None = None) -> SoakReport:
        """Kill so many times, or until the time is over; then finish the job and compare."""
        self._started_s = time.monotonic()
        for _ in range(kills):
            if deadline_s is not None and self._seconds() > deadline_s:
                break
            self._kill_one()
        if self._driver is not None:
            self._kill_driver()
        self._finish()
        self.report.duration_s = self._seconds()
        return self.report

    def _seconds(self) -> float:
        return time.monotonic() - self._started_s

    def _note(self, what: str) -> None:
        """Record an event, to explain a failure."""
        self.report.trace.append(f"{self._seconds():7.2f} s, epoch {self._seen}: {what}")

    def _kill_one(self) -> None:
        victim = self._choose.choices(list(SHARES), weights=list(SHARES.values()))[0]
        if self._driver is None:
            self._start()
        # Every tenth kill does not wait for progress after the last one.
        if self._choose.random() > 0.1:
            self._progresses(self._choose.randint(1, 2))
        self._await_moment()
        self.report.uploads_seen += self._open_uploads()
        self._note(f"kill the {victim.value}")
        match victim:
            case Victim.DRIVER:
                self._kill_driver()
            case Victim.WORKER:
                self._kill_worker()
            case Victim.SERVER:
                self._kill_server()

    def _await_moment(self) -> None:
        """The edge of an epoch, the middle of one, or any moment."""
        moment = self._choose.random()
        newest = self._newest_epoch()
        if moment < 0.3:
            self._wait_for(lambda: self._newest_epoch() > newest)
            self._sleep(self._choose.uniform(0, 0.1))
        elif moment < 0.6:
            self._wait_for(lambda: self._is_being_written(self._newest_epoch() + 1))
            self._sleep(self._choose.uniform(0, 0.1))
        else:
            self._sleep(self._choose.uniform(0, EPOCH_S))

    def _kill_driver(self) -> None:
        assert self._driver is not None
        self._driver.kill()
        self._driver = None
        self.report.kills[Victim.DRIVER] += 1

    def _kill_worker(self) -> None:
        while self._driver is not None:
            workers = self._driver.python_workers()
            if workers:
                with suppress(ProcessLookupError):
                    os.kill(self._choose.choice(workers), signal.SIGKILL)
                    self.report.kills[Victim.WORKER] += 1
                    return
            self._sleep(0.01)

    def _kill_server(self) -> None:
        """Kill the server; in some outages the driver is killed too, and some are long."""
        self._server.kill()
        self.report.kills[Victim.SERVER] += 1
        if self._choose.random() < 0.2:
            self._sleep(self._choose.uniform(0, 1))
            if self._driver is not None:
                self._kill_driver()
        if self._choose.random() < 0.25:
            self._sleep(OUTAGE_S)
        self._server.start()
        self._note("the S3 server is back")

    def _start(self, *arguments: str) -> Session:
        number = len(self._drivers)
        scratch = self._folder / f"scratch-{number}"
        scratch.mkdir()
        store = {"url": self._config.url, "options": dict(self._config.options)}
        env = {
            STORE: json.dumps(store),
            "TMPDIR": str(scratch),
            "SPARK_LOCAL_DIRS": str(scratch),
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [sys.executable, "-m", "tests.support.soak.soak_job", "--seed", str(self.report.seed)]
        self._driver = Session([*command, *arguments], self._folder / f"driver-{number}.log", env)
        self._drivers.append(self._driver)
        self.report.starts += 1
        self._note(f"driver {number} started")
        return self._driver

    def _finish(self) -> None:
        """Let one more driver end the job, and compare everything with the oracle."""
        epochs = self._newest_epoch() + LAST_EPOCHS
        rows = epochs * ROWS_PER_EPOCH
        driver = self._start("--rows", str(rows))
        code = driver.wait(DEADLINE_S)
        assert code == 0, driver.said()
        self.report.epochs, self.report.rows = self._newest_epoch(), rows
        self._check_output(expected_output(self.report.seed, epochs))
        self._check_state(expected_state(self.report.seed, rows))
        self._check_objects()

    def _check_output(self, expected: list[tuple[Any, ...]]) -> None:
        found = [info for info in self._store.list("out/") if not info.path.startswith("out/_")]
        found_rows = (row for info in found for row in _checked_rows(self._store.get(info.path).data))
        rows = sorted(found_rows, key=str)
        assert rows == expected
        self.report.output_rows, self.report.output_files = len(rows), len(found)

    def _check_state(self, expected: list[tuple[Any, ...]]) -> None:
        rows = state_rows(self._backend(), JOB, "totals", NotedTotals(), "totals")
        assert sorted(tuple(row.values()) for row in rows) == expected

    def _check_objects(self) -> None:
        """No upload dangles, and all that the retained epochs refer to is there."""
        assert list(self._store.uploads.list_dangling()) == []
        job = self._backend().objects(JOB)
        stored = {info.path for info in job.store.list(f"{JOB}/")}
        for epoch in job.list_epochs():
            needed = read_references(job, epoch)
            assert isinstance(needed, frozenset), needed
            assert {job.store_path(path) for path in needed} <= stored

    def _backend(self) -> ls.ParquetBackend:
        checkpoints = StoreConfig(f"{self._config.url}/checkpoints", self._config.options)
        return ls.ParquetBackend(checkpoints, cache_dir=self._folder / "reader")

    def _progresses(self, epochs: int) -> None:
        """Wait until so many more epochs are published, by this driver or by one started anew."""
        reached = self._newest_epoch() + epochs
        self._wait_for(lambda: self._newest_epoch() >= reached)

    def _wait_for(self, reached: Callable[[], bool]) -> None:
        ends_s = time.monotonic() + DEADLINE_S
        while not reached():
            assert time.monotonic() < ends_s, f"stuck:\n{self._drivers[-1].said()}"
            self._keep_driving()
            time.sleep(0.02)

    def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        self._keep_driving()

    def _keep_driving(self) -> None:
        """Start a driver anew if the one before has ended, for a reason that is none of our bugs."""
        driver = self._driver
        if driver is None:
            self._start()
        elif driver.has_ended():
            raised = _ENDED_BY.findall(driver.said())
            why = raised[-1] if raised else "nothing"
            is_lost = why == "OperatorError" and _WORKER_LOST.search(driver.said())
            assert why in GAVE_UP or is_lost, f"a driver ended by {why}:\n{driver.said()}"
            self.report.gave_up[why] += 1
            self._note(f"driver {len(self._drivers) - 1} ended by {why}")
            driver.kill()
            self._start()

    def _newest_epoch(self) -> int:
        """The newest published epoch; as long as the server is away, the one seen before."""
        with suppress(StorageUnavailableError):
            names = [info.path for info in self._store.list(f"checkpoints/{JOB}/epochs/")]
            self._seen = max((int(Path(name).stem) for name in names), default=0)
        return self._seen

    def _is_being_written(self, epoch: int) -> bool:
        with suppress(StorageUnavailableError):
            return any(self._store.list(f"checkpoints/{JOB}/checkpoints/{epoch}/"))
        return False

    def _open_uploads(self) -> int:
        with suppress(StorageUnavailableError):
            return len(list(self._store.uploads.list_dangling()))
        return 0


def _checked_rows(data: bytes) -> list[tuple[Any, ...]]:
    """The rows of one file, without the notes, which are long and follow from the rest."""
    table = pq.read_table(pa.BufferReader(data))
    user, count, _, text = (column.to_pylist() for column in table.columns)
    assert text == list(map(note, user, count))
    return [tuple(row.values()) for row in table.drop_columns("note").to_pylist()]


def expected_output(seed: int, epochs: int) -> list[tuple[Any, ...]]:
    """The oracle: the totals of every bidder after every epoch in which the bidder bid."""
    return totals_after_each(bids_of(seed, epochs, ROWS_PER_EPOCH))


def expected_state(seed: int, rows: int) -> list[tuple[Any, ...]]:
    """The oracle: the totals of every bidder over all rows at once."""
    bids = pa.table(AuctionHouse(seed).rows("bids", 0, rows, ["bidder", "price"]))
    sums = bids.group_by("bidder").aggregate([("price", "count"), ("price", "sum")])
    columns = [column.to_pylist() for column in sums.columns]
    return sorted((str(user), count, float(spend)) for user, count, spend in zip(*columns, strict=True))
