"""Jobs that go back to earlier epochs under faults: rows are visible once, or twice if they were before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakestate.repair.open_files import OpenSince
from lakestate.testing.simulation import BrokenPromiseError, Promise, RunResult, Scenario, run_seed
from lakestate.testing.simulation.random_streams import random_stream


def run(seed: int) -> RunResult:
    """A history with many epochs that can be gone back to."""
    drawn = Scenario.draw(random_stream(seed, "scenario"))
    settings = {"rows": 24, "rows_per_epoch": 6, "drivers": 4, "keep_epochs": 3, "loses_part": False}
    return run_seed(seed, scenario=replace(drawn, goes_back=True, commits=False, **settings))  # type: ignore[arg-type]


def violation(seeds: range) -> BrokenPromiseError | None:
    return next((found for seed in seeds if (found := run(seed).violation) is not None), None)


SEEDS = [range(15), pytest.param(range(15, 60), marks=pytest.mark.full)]


@pytest.mark.parametrize("seeds", SEEDS, ids=["some", "more"])
def test_no_row_is_lost_or_surplus_when_drivers_go_back_and_crash(seeds: range) -> None:
    results = [run(seed) for seed in seeds]
    assert [result.violation for result in results if result.violation is not None] == []
    assert sum(result.counts["went back"] for result in results) >= len(seeds) // 5


def test_open_files_that_are_given_up_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenSince, "continues", lambda self, file: False)
    found = violation(range(60))
    assert found is not None
    assert found.promise in (Promise.OUTPUT_COMPLETE, Promise.PAUSE_SHOWS_ALL)


def test_finished_files_that_are_continued_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenSince, "continues", lambda self, file: True)
    monkeypatch.setattr(OpenSince, "resumed", lambda self, file, state: (file, state))
    assert violation(range(60)) is not None
