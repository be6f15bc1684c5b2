"""Where the time goes: parts within parts count once, and so does what other threads do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from lakestate.observability import time_parts
from lakestate.observability.time_parts import PartTimes, beside, each_in, measured, timed, waiting


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only the test moves, in seconds."""
    now = [0.0]
    monkeypatch.setattr(time_parts.time, "perf_counter", lambda: now[0])
    return now


def test_a_part_within_a_part_is_not_counted_twice(clock: list[float]) -> None:
    times = PartTimes("rest")
    with measured(times):
        clock[0] += 1
        with timed("operator"):
            clock[0] += 2
            with timed("lookup"):
                clock[0] += 4
            clock[0] += 8
    assert times.milliseconds() == {"rest": 1000, "operator": 10_000, "lookup": 4000}


def test_nothing_is_measured_outside(clock: list[float]) -> None:
    times = PartTimes("rest")
    with timed("lookup"):
        clock[0] += 1
    assert times.milliseconds() == {"rest": 1000}


def test_an_error_ends_its_part(clock: list[float]) -> None:
    times = PartTimes("rest")
    with measured(times):
        with suppress(ValueError), timed("operator"):
            clock[0] += 1
            raise ValueError
        clock[0] += 2
    assert times.milliseconds() == {"operator": 1000, "rest": 2000}


def test_only_getting_items_belongs_to_their_part(clock: list[float]) -> None:
    def slowly() -> object:
        for item in range(3):
            clock[0] += 1
            yield item

    times = PartTimes("rest")
    with measured(times):
        for _ in each_in("input", slowly()):
            clock[0] += 10
    assert times.milliseconds() == {"input": 3000, "rest": 30_000}


def test_waiting_is_shared_out_to_what_was_waited_for(clock: list[float]) -> None:
    def store() -> None:
        clock[0] += 1
        with timed("upload"):
            clock[0] += 3

    times = PartTimes("rest")
    with measured(times), ThreadPoolExecutor(1) as pool:
        done = pool.submit(beside("encode", store))
        done.result()
        times.milliseconds()  # The clock of the test moved in the other thread: take that out.
        before = times.milliseconds()
        with waiting():
            clock[0] += 2
    found = times.milliseconds()
    assert found["encode"] - before.get("encode", 0) == 500
    assert found["upload"] - before.get("upload", 0) == 1500


def test_work_that_runs_at_once_counts_where_it_runs(clock: list[float]) -> None:
    times = PartTimes("rest")
    with measured(times), waiting():
        beside("encode", lambda: clock.__setitem__(0, clock[0] + 1))()
    assert times.milliseconds()["encode"] == 1000
