"""A small history in which every store call goes wrong once, or every pair of calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakestate.testing.simulation.faults import CallId, Mishap
from lakestate.testing.simulation.run import run_seed
from lakestate.testing.simulation.scenario import EAGER, Scenario
from lakestate.testing.simulation.sweep import Task

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
    check_rate=0.0,
)
"""Three or so epochs, compaction, retention; the driver that takes over rescales and upgrades."""

CRASHES = (Mishap.CRASH_BEFORE, Mishap.CRASH_AFTER)


def calls_of(script: dict[CallId, Mishap], scenario: Scenario = SMALL) -> list[CallId]:
    """The calls at which a run with these faults can go wrong."""
    result = run_seed(SEED, scenario=scenario, script=script)
    assert result.violation is None, result.violation
    return result.calls


def single_faults(mishaps: Sequence[Mishap]) -> Iterator[Task]:
    """One fault in one run, at every call, of each kind."""
    for call in calls_of({}):
        for mishap in mishaps:
            yield Task(SEED, SMALL, {call: mishap})


def pairs_of_crashes(scenario: Scenario) -> Iterator[Task]:
    """Two crashes in one run: at every call, and then at every call that follows."""
    for first in calls_of({}, scenario):
        for mishap in CRASHES:
            later = calls_of({first: mishap}, scenario)
            after = later.index(first) + 1
            for second in later[after:]:
                for again in CRASHES:
                    yield Task(SEED, scenario, {first: mishap, second: again})
