"""From a failing seed to the least that still fails: fewer faults, a simpler scenario, a short trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from lakestate.testing.simulation.chance import chance
from lakestate.testing.simulation.faults import CallId, FaultRates, Mishap, Script, shown_script
from lakestate.testing.simulation.run import JobOf, RunResult, ledger_job, run_seed
from lakestate.testing.simulation.scenario import Scenario

RUNS_MAX = 150
TRACE_SHOWN = 60
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
    {"drivers": 1},
    {"drivers": 2},
    {"rows": 6},
    {"rows": 12},
)


@dataclass(frozen=True)
class Failure:
    """A violation in its smallest known form."""

    seed: int
    scenario: Scenario
    script: Script
    result: RunResult

    @property
    def command(self) -> str:
        """What repeats it."""
        faults = f" --faults '{shown_script(self.script)}'"
        return f"python -m lakestate.testing.simulation replay {self.seed}{faults}{self._settings()}"

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.result.violation}", f"replay: {self.command}"]
        lines += [f"fault: {call}: {mishap.value}" for call, mishap in sorted(self.script.items())]
        hidden = len(self.result.trace) - TRACE_SHOWN
        if hidden > 0:
            lines.append(f"trace, without its first {hidden} events:")
        return "\n".join([*lines, *self.result.trace[-TRACE_SHOWN:]])

    def _settings(self) -> str:
        drawn = Scenario.drawn(chance(self.seed, "scenario"))
        changed = {
            item.name: getattr(self.scenario, item.name)
            for item in fields(Scenario)
            if item.name not in ("rates", "compaction")
            and getattr(self.scenario, item.name) != getattr(drawn, item.name)
        }
        if self.scenario.compaction is None and drawn.compaction is not None:
            changed["compaction"] = None
        return "".join(f" --set '{name}={value!r}'" for name, value in changed.items())


def shrunk(seed: int, scenario: Scenario | None = None, job_of: JobOf = ledger_job) -> Failure:
    """The smallest failure that can be found in a bounded number of runs."""
    smallest = scenario or Scenario.drawn(chance(seed, "scenario"))
    first = run_seed(seed, scenario=smallest, job_of=job_of)
    assert first.violation is not None, f"seed {seed} does not fail"
    budget = iter(range(RUNS_MAX))

    def fails(scenario: Scenario, script: Script) -> bool:
        if next(budget, None) is None:
            return False
        return run_seed(seed, scenario=scenario, script=script, job_of=job_of).violation is not None

    script: Script = first.struck
    for simpler in _simpler(smallest):
        if fails(simpler, script):
            smallest = simpler
    script = _fewer(script, partial(fails, smallest))
    for changes in _SIMPLER:
        simpler = replace(smallest, **changes)
        if simpler != smallest and fails(simpler, script):
            smallest = simpler
    result = run_seed(seed, scenario=smallest, script=script, job_of=job_of, traced=True)
    return Failure(seed, smallest, script, result)


def _simpler(scenario: Scenario) -> Iterator[Scenario]:
    """Without the decisions that no script holds."""
    yield replace(scenario, rates=FaultRates(second_driver=scenario.rates.second_driver))
    yield replace(scenario, rates=FaultRates(superseded=scenario.rates.superseded))
    yield replace(scenario, rates=FaultRates())


def _fewer(script: Script, fails: Callable[[dict[CallId, Mishap]], bool]) -> Script:
    """Leave faults out, many at a time and then one by one, as long as it still fails."""
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
