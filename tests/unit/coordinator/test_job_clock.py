"""The time of a job when the clocks of its drivers are wrong."""

from __future__ import annotations

import logging
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.clocks import SetClock

import lakestate as ls
from lakestate.ambient import SystemAmbient
from lakestate.coordinator.job_clock import JobClock
from lakestate.coordinator.job_driver import DriverSettings
from lakestate.testing import OperatorHarness

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
TEN_YEARS_MS = 3653 * DAY_MS
START_MS = 1_767_225_600_000
"""2026-01-01."""


class Seen(ls.Operator):
    """Remembers users for a day, and says who is new."""

    output = "user string, is_new boolean"
    users = ls.KeyedTable(key="user string", value="n bigint", ttl="1 day")
    kept = ls.KeyedTable(key="user string", value="n bigint")

    def process_batch(self, batch: Any, ctx: ls.OperatorContext) -> Any:
        is_new = pc.invert(self.users.contains(batch))
        self.users.put(batch)
        self.kept.put(batch)
        yield pa.table({"user": batch["user"], "is_new": is_new})


class Job:
    def __init__(self, settings: DriverSettings | None = None) -> None:
        self.clock = SetClock(START_MS)
        backend = ls.ParquetBackend(f"memory://{uuid.uuid4().hex}", ambient=self.clock, cache_bytes=0)
        self.harness = OperatorHarness(Seen(), backend=backend, settings=settings, parallelism=2)

    def wait(self, milliseconds: int) -> None:
        self.clock.now += milliseconds

    def new_users(self, *users: str) -> list[str]:
        """Run an epoch with these users, and return those that were new."""
        found = self.harness.epoch([{"user": user, "n": 1} for user in users])
        return sorted(row["user"] for row in found if row["is_new"])

    def reset(self) -> None:
        self.harness._driver.stop()
        self.harness._driver = self.harness._start_driver(reset_clock=True)


def test_a_clock_that_is_ahead_for_one_epoch_does_not_stop_time_without_a_word() -> None:
    job = Job()
    job.new_users("ann")
    job.wait(TEN_YEARS_MS)
    # No driver that starts now can know whether so much time has passed, but it can ask.
    with pytest.raises(ls.ClockError, match="far ahead of the newest epoch: rows with a time to live"):
        job.new_users("bob")
    job.reset()
    job.new_users("bob")
    job.wait(-TEN_YEARS_MS)
    with pytest.raises(ls.ClockError, match="the time of this job is ahead of the clock") as refused:
        job.new_users("cy")
    assert refused.value.object_name == "epoch 2 of job harness"
    assert refused.value.found == "2036-01-02 00:00:00 UTC, while the clock says 2026-01-01 00:00:00 UTC"
    assert refused.value.expected == "at most 1:00:00 ahead"
    assert sorted(row["user"] for row in job.harness.rows("kept")) == ["ann", "bob"]


def test_a_reset_removes_what_had_expired_and_lets_all_else_begin_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = Job()
    job.new_users("ann")
    job.wait(TEN_YEARS_MS)
    job.reset()
    job.new_users("bob")
    job.wait(-TEN_YEARS_MS)
    with caplog.at_level(logging.WARNING, "lakestate.epochs"):
        job.reset()
        assert job.new_users() == []
    (told,) = caplog.messages
    assert told == (
        "job harness: its time goes back from 2036-01-02 00:00:00 UTC to 2026-01-01 00:00:00 UTC; rows with "
        "a time to live that had expired are removed for good, and that of all others begins anew"
    )
    assert job.harness.progress is not None
    assert job.harness.progress.clock_ahead_ms == 0
    # Ann had expired ten years from now, and does not come back. Bob lives for a day from the reset.
    assert [row["user"] for row in job.harness.rows("users")] == ["bob"]
    assert sorted(row["user"] for row in job.harness.rows("kept")) == ["ann", "bob"]
    job.wait(DAY_MS - HOUR_MS)
    assert job.new_users("ann") == ["ann"]
    job.wait(2 * HOUR_MS)
    assert job.new_users("bob", "ann") == ["bob"]


def test_a_reset_that_is_not_published_is_asked_for_again() -> None:
    job = Job()
    job.wait(TEN_YEARS_MS)
    job.new_users("bob")
    job.wait(-TEN_YEARS_MS)
    job.reset()
    job.harness._driver.plan()
    job.harness.restart()
    with pytest.raises(ls.ClockError, match="start with reset_clock=True"):
        job.new_users("cy")


def test_a_clock_that_is_a_little_behind_is_followed_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    job = Job()
    job.new_users("ann")
    job.wait(-HOUR_MS)
    with caplog.at_level(logging.WARNING, "lakestate.epochs"):
        assert job.new_users("bob") == ["bob"]
        assert job.new_users("cy") == ["cy"]
    (told,) = caplog.messages
    assert told == (
        "job harness: the clock of this driver is 1:00:00 behind the end of epoch 1; until it has caught up, "
        "no time to live passes"
    )
    assert job.harness.progress is not None
    assert job.harness.progress.clock_ahead_ms == HOUR_MS
    assert "time 3,600,000 ms ahead of the clock" in str(job.harness.progress)
    job.wait(-1)
    with pytest.raises(ls.ClockError):
        job.new_users("dee")


def test_a_job_that_nothing_expires_in_need_not_care() -> None:
    job = Job(DriverSettings(clock_tolerance_ms=None))
    for jump_ms in (TEN_YEARS_MS, -TEN_YEARS_MS, 5 * HOUR_MS):
        job.wait(jump_ms)
        job.new_users("ann")


def test_a_clock_that_jumps_ahead_while_a_driver_runs_is_refused() -> None:
    ambient, uptime = SetClock(START_MS), SetClock(0)
    clock = JobClock(ambient, uptime_ms=uptime.now_ms)
    ambient.now += TEN_YEARS_MS
    uptime.now += TEN_YEARS_MS
    clock.now_ms()
    # Small steps do not add up: they are how a clock is corrected.
    for _ in range(3):
        ambient.now += HOUR_MS
        clock.now_ms()
    ambient.now += HOUR_MS + 1000
    with pytest.raises(ls.ClockError, match="the clock of this driver has jumped ahead") as refused:
        clock.now_ms()
    assert refused.value.found == "2036-01-02 04:00:01 UTC, 1:00:01 too late"
    assert refused.value.expected == "at most 1:00:00"
    assert refused.value.action is not None
    assert "nothing was published" in refused.value.action


def test_the_time_since_a_host_was_started_passes_as_its_clock_does() -> None:
    clock = JobClock(SystemAmbient(), tolerance_ms=5_000)
    assert abs(clock.now_ms() - SystemAmbient().now_ms()) < 5_000
