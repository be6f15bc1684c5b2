"""Whole jobs under faults, by the thousand; and that the simulator itself can be believed."""

from __future__ import annotations

import logging
import os
import shlex
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest
from tests.simulation.mutations import (
    Patch,
    forget_an_interrupted_commit,
    harsh,
    ignore_a_superseded_attempt,
)

from lakestate.errors import InvalidInputError
from lakestate.storage import ObjectStore
from lakestate.testing.simulation import FaultKind, Scenario, run_seed
from lakestate.testing.simulation.__main__ import main
from lakestate.testing.simulation.campaigns.exhaustive import PAIRED, SMALL, pairs_of_crashes, single_faults
from lakestate.testing.simulation.campaigns.shrink import shrink
from lakestate.testing.simulation.campaigns.sweep import DECISIONS, Journal, Sweep, Task, sweep
from lakestate.testing.simulation.faults import CallId
from lakestate.testing.simulation.stores.store import SimulatedStore
from lakestate.testing.store_contract import StoreContract

SEEDS = 700
SEEDS_SHARE = 300
"""So many in `make test`, the others in `make test-full`, and further ones in `make soak`."""

SINGLES_SHARE = 8
SINGLES_SHARE_FULL = 3
PAIRS_SHARE = 20
"""One of so many. `make soak` has all of them."""

# Work for both processors: a machine that is busy otherwise takes several times as long.
TIMEOUT_S = 1800


def check(total: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{total}")
    if total.failed:
        task, _ = total.failed[0]
        told = shrink(task.seed, task.scenario, task.script)
        some = "\n".join(f"{why}\n  replay: {task.command}" for task, why in total.failed[:3])
        pytest.fail(f"{len(total.failed)} runs broke a promise:\n{some}\n{told}", pytrace=False)


OFTEN = {fault.name.lower() for fault in FaultKind} | DECISIONS - {"parts lost"}
OFTEN |= {
    "rescaled",
    "upgraded",
    "merges",
    "epochs collected",
    "tags",
    "drivers fenced",
    "further pages",
    "reads",
    "own commits",
    "clean-ups of a neighbour",
    "copies refused",
}
SELDOM = {"parts lost", "caches lost", "refused for a lost part"}
"""Too seldom for a share of the histories to meet each of them for certain."""


@pytest.mark.alone
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(
    ("seeds", "met"),
    [
        pytest.param(range(SEEDS_SHARE), OFTEN, id="some"),
        pytest.param(range(SEEDS_SHARE, SEEDS), OFTEN | SELDOM, id="others", marks=pytest.mark.full),
    ],
)
def test_no_promise_is_broken_in_hundreds_of_histories(
    seeds: range, met: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    total = sweep(map(Task, seeds))
    check(total, capsys)
    assert total.runs == len(seeds)
    assert met <= {name for name, times in total.counts.items() if times}


CRASHES_AND_LOST_ANSWERS = (FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER, FaultKind.ANSWER_LOST)


@pytest.mark.timeout(TIMEOUT_S)
def test_a_crash_or_a_lost_answer_is_made_good_at_a_share_of_all_calls(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _check_single_faults(list(single_faults(CRASHES_AND_LOST_ANSWERS))[::SINGLES_SHARE], capsys)


@pytest.mark.full
@pytest.mark.timeout(TIMEOUT_S)
def test_a_crash_or_a_lost_answer_is_made_good_at_a_larger_share_of_all_calls(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _check_single_faults(list(single_faults(CRASHES_AND_LOST_ANSWERS))[1::SINGLES_SHARE_FULL], capsys)


def _check_single_faults(tasks: Sequence[Task], capsys: pytest.CaptureFixture[str]) -> None:
    total = sweep(tasks)
    check(total, capsys)
    # Every run had the one fault that it was made for.
    assert total.runs == total.faults == len(tasks)


@pytest.mark.full
@pytest.mark.timeout(TIMEOUT_S)
def test_two_crashes_are_made_good_at_a_share_of_all_pairs_of_calls(
    capsys: pytest.CaptureFixture[str],
) -> None:
    check(sweep(pairs_of_crashes(PAIRED, PAIRS_SHARE)), capsys)


def test_a_seed_always_makes_the_same_history() -> None:
    for seed in (3, 4):
        first, again = run_seed(seed, traced=True), run_seed(seed, traced=True)
        assert first.trace == again.trace
        assert len(first.trace) > 50


def test_older_code_that_overslept_may_refuse_state_of_newer_code() -> None:
    """It claims the job from a driver that has upgraded the state; the next start continues."""
    assert run_seed(10816).violation is None


def test_the_record_of_an_upload_may_come_again_after_its_last_epoch() -> None:
    """Its request arrives twice, and once too late; clean-up of a later epoch would abort it."""
    assert run_seed(4005).violation is None


def test_a_script_of_faults_repeats_exactly_those() -> None:
    script = {CallId("d1", 12): FaultKind.CRASH_AFTER}
    result = run_seed(5, scenario=SMALL, script=script)
    assert (result.struck, result.crashes, result.violation) == (script, 1, None)


@pytest.mark.parametrize(
    "mutate",
    [
        pytest.param(forget_an_interrupted_commit, marks=pytest.mark.full),
        ignore_a_superseded_attempt,
    ],
)
def test_a_failure_is_made_small_and_its_command_replays_it(
    mutate: Callable[[Patch], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    # The command makes the loggers silent; said here, they are not silent for the tests after this one.
    caplog.set_level(logging.CRITICAL, "lakestate")
    mutate(monkeypatch)
    seed = next(seed for seed in count() if run_seed(seed, scenario=harsh(seed)).violation is not None)
    failure = shrink(seed, harsh(seed))
    assert len(failure.script) <= 3
    told = str(failure).splitlines()
    assert told[0] == f"seed {seed}: {failure.result.violation}"
    program, _, module, *arguments = shlex.split(told[1].removeprefix("replay: "))
    assert (program, module) == ("python", "lakestate.testing.simulation")
    assert main(arguments) == 1
    replayed = capsys.readouterr().out.splitlines()
    assert replayed[:-1] == [*map(str, failure.result.trace)]
    assert replayed[-1] == str(failure.result.violation)


def test_a_scenario_is_printed_and_read_again() -> None:
    drawn = Scenario()
    told = Scenario(rows=3, parallelism=(2, 1), sink_parallelism=1, compaction=None, is_cached=True)
    again = drawn
    for change in told.changes_from(drawn):
        again = again.with_setting(change)
    assert again == told
    with pytest.raises(InvalidInputError, match="no such setting"):
        drawn.with_setting("row=3")
    with pytest.raises(InvalidInputError, match="not a value of this setting"):
        drawn.with_setting("rows=__import__('os')")


def test_a_sweep_continues_where_it_was_stopped(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first = sweep(map(Task, range(3)), processes=1, journal=Journal(path))
    whole = sweep(map(Task, range(4)), processes=1, journal=Journal(path))
    assert (first.runs, whole.runs) == (3, 4)
    assert Journal(path).total == whole
    assert whole.steps == sum(run_seed(seed).steps for seed in range(4))


class TestSimulatedStore(StoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return SimulatedStore("contract", lambda: int(time.time() * 1000))


@pytest.mark.soak
def test_no_promise_is_broken_for_as_long_as_there_is_time(capsys: pytest.CaptureFixture[str]) -> None:
    given = [int(seed) for seed in os.environ.get("SEEDS", "").split(",") if seed]
    seconds_max = None if given else float(os.environ.get("SOAK_MINUTES", "10")) * 60
    check(sweep(map(Task, given or count(SEEDS)), seconds_max=seconds_max), capsys)


@pytest.mark.soak
def test_any_fault_at_any_store_call_is_made_good(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = list(single_faults(tuple(FaultKind)))
    _check_single_faults(tasks, capsys)
    assert len({call for task in tasks for call in task.script or ()}) > 150


@pytest.mark.soak
def test_any_pair_of_crashes_is_made_good(capsys: pytest.CaptureFixture[str]) -> None:
    check(sweep(pairs_of_crashes(PAIRED)), capsys)
