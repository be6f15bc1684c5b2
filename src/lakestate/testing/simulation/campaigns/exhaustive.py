"""A fault at every store call of a small history, or a crash at every pair of calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lakestate.testing.faults import Operation
from lakestate.testing.simulation.campaigns.sweep import Task
from lakestate.testing.simulation.faults import CallId, FaultKind
from lakestate.testing.simulation.run import run_seed
from lakestate.testing.simulation.scenario import EAGER, Scenario

SEED = 11
SMALL = Scenario(
    rows=9,
    rows_per_epoch=4,
    drivers=1,
    parallelism=(2, 1),
    sink_parallelism=1,
    keep_epochs=1,
    compaction=EAGER,
    upgrade_at=1,
    switch_rate=0.0,
    part_bytes=100,
    roll_bytes=300,
    tags=0,
    readers=0,
    patience_min=30,
    commits=True,
)
"""About three epochs, with compaction and retention. The driver that takes over rescales and upgrades."""

PAIRED = replace(SMALL, drivers=2, rows=4)
"""Two epochs, and two drivers that may crash: small enough for every pair of calls."""

CRASHES = (FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER)


def calls_of(script: dict[CallId, FaultKind], scenario: Scenario = SMALL) -> dict[CallId, Operation]:
    """The calls of a run with these faults at which a fault can strike."""
    result = run_seed(SEED, scenario=scenario, script=script)
    if result.violation is not None:
        raise result.violation
    return result.calls


def single_faults(kinds: Sequence[FaultKind], scenario: Scenario = SMALL) -> Iterator[Task]:
    """Runs with one fault each: at every call, of each kind that can strike there."""
    for call, operation in calls_of({}, scenario).items():
        for fault in kinds:
            if fault.can_strike(operation):
                yield Task(SEED, scenario, {call: fault})


def pairs_of_crashes(scenario: Scenario, share: int = 1) -> Iterator[Task]:
    """Runs with two crashes each: at every call, and at every call that follows it.

    A `share` of 10 takes every tenth first crash, and for each of them every tenth second one.
    """
    firsts = [(call, fault) for call in calls_of({}, scenario) for fault in CRASHES]
    for first, fault in firsts[::share]:
        later = list(calls_of({first: fault}, scenario))
        seconds = [(call, again) for call in later[later.index(first) + 1 :] for again in CRASHES]
        for second, again in seconds[::share]:
            yield Task(SEED, scenario, {first: fault, second: again})
