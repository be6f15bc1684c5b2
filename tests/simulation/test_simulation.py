"""Whole jobs under faults, by the thousand; and that the simulator itself can be believed."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from itertools import count

import pytest
from tests.simulation.mutations import forget_an_interrupted_commit

from lakestate.storage import ObjectStore
from lakestate.testing.simulation import Mishap, run_seed
from lakestate.testing.simulation.__main__ import main
from lakestate.testing.simulation.exhaustive import SMALL, pairs_of_crashes, single_faults
from lakestate.testing.simulation.faults import CallId
from lakestate.testing.simulation.shrink import shrunk
from lakestate.testing.simulation.store import SimulatedStore
from lakestate.testing.simulation.sweep import Sweep, Task, sweep
from lakestate.testing.store_contract import StoreContract

SEEDS = 1_000

# A thousand histories take minutes: `make soak` runs them.
pytestmark = pytest.mark.soak


def check(total: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{total}")
    if total.failed:
        task, _ = total.failed[0]
        told = shrunk(task.seed) if task.script is None else (task.seed, task.script)
        pytest.fail(f"{len(total.failed)} runs broke a promise: {total.failed[:3]}\n{told}", pytrace=False)


@pytest.mark.timeout(1800)
def test_no_promise_is_broken_in_a_thousand_histories(capsys: pytest.CaptureFixture[str]) -> None:
    total = sweep(map(Task, range(SEEDS)))
    check(total, capsys)
    assert total.runs == SEEDS
    survived = {name for name, times in total.counts.items() if times}
    assert {mishap.name.lower() for mishap in Mishap} | {"superseded", "two drivers"} <= survived


@pytest.mark.timeout(900)
def test_a_crash_or_a_sleep_at_any_single_store_call_is_made_good(capsys: pytest.CaptureFixture[str]) -> None:
    mishaps = (Mishap.CRASH_BEFORE, Mishap.CRASH_AFTER, Mishap.STALL)
    total = sweep(single_faults(mishaps))
    check(total, capsys)
    assert total.runs >= 3 * 100


def test_a_seed_always_makes_the_same_history() -> None:
    for seed in (3, 4):
        first, again = run_seed(seed, traced=True), run_seed(seed, traced=True)
        assert first.trace == again.trace
        assert len(first.trace) > 50


def test_a_script_of_faults_repeats_exactly_those() -> None:
    script = {CallId("d1", 12): Mishap.CRASH_AFTER}
    result = run_seed(5, scenario=SMALL, script=script)
    assert (result.struck, result.crashes, result.violation) == (script, 1, None)


def test_a_failure_is_made_small_and_can_be_replayed_with_one_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forget_an_interrupted_commit(monkeypatch)
    seed = next(seed for seed in count() if run_seed(seed).violation is not None)
    failure = shrunk(seed)
    assert len(failure.script) <= 2
    arguments = [part.strip("'") for part in failure.command.split(" ")[3:]]
    assert main(arguments) == 1
    assert str(failure.result.violation) in capsys.readouterr().out


class TestSimulatedStore(StoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return SimulatedStore("contract", lambda: int(time.time() * 1000))


@pytest.mark.soak
def test_no_promise_is_broken_for_as_long_as_there_is_time(capsys: pytest.CaptureFixture[str]) -> None:
    given = [int(seed) for seed in os.environ.get("SEEDS", "").split(",") if seed]
    seeds = given if len(given) > 1 else range(SEEDS, SEEDS + given[0]) if given else count(SEEDS)
    minutes = None if given else float(os.environ.get("SOAK_MINUTES", "10"))
    check(sweep(map(Task, seeds), seconds_max=None if minutes is None else minutes * 60), capsys)


@pytest.mark.soak
def test_any_pair_of_crashes_is_made_good(capsys: pytest.CaptureFixture[str]) -> None:
    check(sweep(pairs_of_crashes(replace(SMALL, drivers=2, rows=4))), capsys)


@pytest.mark.soak
def test_any_fault_at_any_single_store_call_is_made_good(capsys: pytest.CaptureFixture[str]) -> None:
    check(sweep(single_faults(tuple(Mishap))), capsys)
