"""How the time of a Spark job is shared out to what its tasks did."""

from __future__ import annotations

import pytest

from lakestate.coordinator.epoch_plan import SubtaskReport
from lakestate.spark.execution import run_times
from lakestate.spark.execution.run_times import RunTimes


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(run_times.time, "time", lambda: now[0])
    return now


def _report(started_s: float, ended_s: float, **parts_ms: float) -> SubtaskReport:
    return SubtaskReport("stage", 0, (), parts_ms=parts_ms, started_s=started_s, ended_s=ended_s)


def test_the_parts_of_a_job_are_as_long_as_the_job(clock: list[float]) -> None:
    times = RunTimes()
    clock[0] = 110.0
    times.lap_job([_report(102, 105, input=1000, lookup=500), _report(104, 108, input=2000, lookup=2500)])
    assert times.parts_ms == {"scan": 2000, "tasks": 2000, "input": 3000, "lookup": 3000}


def test_a_clock_that_differs_makes_no_part_longer_than_the_job(clock: list[float]) -> None:
    times = RunTimes()
    clock[0] = 101.0
    times.lap_job([_report(50, 500, operator=1)])
    assert times.parts_ms == {"scan": 0, "tasks": 0, "operator": 1000}
    times = RunTimes()
    clock[0] += 1
    times.lap_job([_report(500, 600, operator=1)])
    assert sum(times.parts_ms.values()) == pytest.approx(1000)


def test_laps_add_up(clock: list[float]) -> None:
    times = RunTimes()
    clock[0] += 1
    times.lap("build")
    clock[0] += 2
    times.lap_job([])
    clock[0] += 3
    times.lap("build")
    assert times.parts_ms == {"build": 4000, "tasks": 2000}
