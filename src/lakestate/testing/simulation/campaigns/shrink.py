"""Reduce a failing run to fewer faults and a simpler scenario that still fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from lakestate.errors import InvalidInputError
from lakestate.testing.simulation.campaigns.sweep import Task
from lakestate.testing.simulation.cluster.world import TraceEvent
from lakestate.testing.simulation.faults import CallId, FaultKind, FaultRates, Script
from lakestate.testing.simulation.random_streams import random_stream
from lakestate.testing.simulation.run import JobFactory, RunResult, run_seed, user_counts_job
from lakestate.testing.simulation.scenario import Scenario

RUNS_MAX = 200
LAST_SHOWN = 20
AROUND_SHOWN = 3
_SIMPLER: tuple[dict[str, Any], ...] = (
    {"tags": 0},
    {"readers": 0},
    {"is_cached": False},
    {"is_parquet": False},
    {"upgrade_at": None},
    {"switch_rate": 0.0},
    {"page_size": 1000},
    {"sink_parallelism": None},
    {"compaction": None},
    {"part_objects": False},
    {"loses_part": False},
    {"small_limits": False},
    {"absorbs": False},
    {"commits": False},
    {"has_neighbour": False},
    {"snapshots": False},
    {"is_skewed": False},
    {"is_paused": False},
    {"goes_back": False},
    {"silences": False},
    {"ends_later": False},
    {"delivers": False},
    {"delivers_to_log": False},
    {"table_visitor": False},
    {"parallelism": (1,)},
)
ROWS_MIN = 3
NOT_REPEATABLE = (
    "the same seed ends differently each time: the operator depends on randomness, time or its process"
)


@dataclass(frozen=True)
class Failure:
    """A violation in its smallest known form."""

    seed: int
    scenario: Scenario
    script: Script
    result: RunResult
    is_repeatable: bool = True
    """False if the failure did not happen again: then it is not reduced."""

    @property
    def task(self) -> Task:
        """The run that fails."""
        return Task(self.seed, self.scenario, self.script)

    def __str__(self) -> str:
        return self.report(self.task.command)

    def report(self, command: str, *remarks: str) -> str:
        """The failure as text, with the command that repeats it."""
        lines = [f"seed {self.seed}: {self.result.violation}", f"replay: {command}", *remarks]
        lines += [] if self.is_repeatable else [NOT_REPEATABLE]
        lines += [f"fault: {call}: {fault.value}" for call, fault in sorted(self.script.items())]
        return "\n".join([*lines, *_essential(self.result.trace)])


def shrink(
    seed: int,
    scenario: Scenario | None = None,
    script: Script | None = None,
    make_job: JobFactory = user_counts_job,
    found: RunResult | None = None,
) -> Failure:
    """The smallest run that breaks the same promise, found in a bounded number of runs.

    `found` is a failing run that the caller has seen, for jobs that may not fail again.
    """
    smallest = whole = scenario or Scenario.draw(random_stream(seed, "scenario"))
    first = found or run_seed(seed, scenario=whole, script=script, make_job=make_job)
    if first.violation is None:
        raise InvalidInputError("there is nothing to shrink", found=f"seed {seed} keeps every promise")
    broken = first.violation.promise
    budget = iter(range(RUNS_MAX))

    def fails(scenario: Scenario, script: Script) -> bool:
        if next(budget, None) is None:
            return False
        found = run_seed(seed, scenario=scenario, script=script, make_job=make_job).violation
        return found is not None and found.promise is broken

    kept: Script = first.struck
    if not fails(whole, kept):
        return Failure(seed, whole, kept, first, is_repeatable=False)
    for simpler in _without_decisions(smallest):
        if simpler != smallest and fails(simpler, kept):
            smallest = simpler
    kept = _fewer(kept, partial(fails, smallest))
    for changes in _SIMPLER:
        simpler = replace(smallest, **changes)
        if simpler != smallest and fails(simpler, kept):
            smallest = simpler
    for name, count in _counts(smallest):
        fewer: dict[str, Any] = {name: count}
        if count < getattr(smallest, name) and fails(replace(smallest, **fewer), kept):
            smallest = replace(smallest, **fewer)
    kept = _fewer(kept, partial(fails, smallest))
    result = run_seed(seed, scenario=smallest, script=kept, make_job=make_job, traced=True)
    if result.violation is None:
        return Failure(seed, whole, first.struck, first, is_repeatable=False)
    return Failure(seed, smallest, kept, result)


def _essential(trace: Sequence[TraceEvent]) -> Iterator[str]:
    """The turning points, the events around them, and the last ones."""
    last = len(trace) - LAST_SHOWN
    turns = [number for number, event in enumerate(trace) if number >= last or event.is_turning_point]
    shown = {near for turn in turns for near in range(turn - AROUND_SHOWN, turn + AROUND_SHOWN + 1)}
    hidden = 0
    for number, event in enumerate(trace):
        if number in shown:
            if hidden:
                yield f"          … {hidden} more"
            hidden = 0
            yield str(event)
        else:
            hidden += 1


def _without_decisions(scenario: Scenario) -> Iterator[Scenario]:
    """Scenarios with fewer faults between store calls, which are not part of a script."""
    yield replace(scenario, rates=FaultRates(second_driver=scenario.rates.second_driver))
    yield replace(scenario, rates=FaultRates(superseded=scenario.rates.superseded))
    yield replace(scenario, rates=FaultRates())


def _counts(scenario: Scenario) -> Iterator[tuple[str, int]]:
    """Smaller counts to try, the smallest first."""
    yield from (("drivers", 1), ("drivers", 2), ("sinks", 1))
    rows = ROWS_MIN
    while rows < scenario.rows:
        yield "rows", rows
        rows *= 2


def _fewer(script: Script, fails: Callable[[dict[CallId, FaultKind]], bool]) -> Script:
    """Remove faults, many at a time and then one by one, as long as the run still fails."""
    kept = list(script.items())
    size = max(1, len(kept) // 2)
    while kept:
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            if fails(dict(fewer)):
                kept = fewer
                break
        else:
            if size == 1:
                break
            size //= 2
        size = max(1, min(size, len(kept)))
    return dict(kept)
