"""From a failing run to the least that still fails: fewer faults, a simpler scenario, a short trace."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from lakestate.testing.simulation.chance import chance
from lakestate.testing.simulation.faults import CallId, FaultRates, Mishap, Script, shown_script
from lakestate.testing.simulation.run import JobOf, RunResult, ledger_job, run_seed
from lakestate.testing.simulation.scenario import Scenario

RUNS_MAX = 200
LAST_SHOWN = 20
AROUND_SHOWN = 3
_TURNS = re.compile(r"\*\* | dies | ends: | is lost$| is fenced: | is run again$|from here on |VIOLATION ")
"""Events after which a history is another one."""
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
    def arguments(self) -> list[str]:
        """What repeats it, for `python -m lakestate.testing.simulation`."""
        drawn = Scenario.drawn(chance(self.seed, "scenario"))
        settings = [part for change in self.scenario.changes_from(drawn) for part in ("--set", change)]
        return ["replay", str(self.seed), "--faults", shown_script(self.script), *settings]

    @property
    def command(self) -> str:
        """What repeats it, for a shell."""
        return f"python -m lakestate.testing.simulation {shlex.join(self.arguments)}"

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.result.violation}", f"replay: {self.command}"]
        lines += [f"fault: {call}: {mishap.value}" for call, mishap in sorted(self.script.items())]
        return "\n".join([*lines, *_essential(self.result.trace)])


def shrunk(
    seed: int,
    scenario: Scenario | None = None,
    script: Script | None = None,
    job_of: JobOf = ledger_job,
) -> Failure:
    """The smallest failure of the same promise that can be found in a bounded number of runs."""
    smallest = scenario or Scenario.drawn(chance(seed, "scenario"))
    first = run_seed(seed, scenario=smallest, script=script, job_of=job_of)
    assert first.violation is not None, f"seed {seed} does not fail"
    budget = iter(range(RUNS_MAX))

    def fails(scenario: Scenario, script: Script) -> bool:
        if next(budget, None) is None:
            return False
        found = run_seed(seed, scenario=scenario, script=script, job_of=job_of).violation
        assert first.violation is not None
        return found is not None and found.promise == first.violation.promise

    kept: Script = first.struck
    for simpler in _without_decisions(smallest):
        if fails(simpler, kept):
            smallest = simpler
    kept = _fewer(kept, partial(fails, smallest))
    for changes in _SIMPLER:
        simpler = replace(smallest, **changes)
        if simpler != smallest and fails(simpler, kept):
            smallest = simpler
    kept = _fewer(kept, partial(fails, smallest))
    result = run_seed(seed, scenario=smallest, script=kept, job_of=job_of, traced=True)
    return Failure(seed, smallest, kept, result)


def _essential(trace: Sequence[str]) -> Iterator[str]:
    """The events at which things took a turn, those around them, and the last ones."""
    last = len(trace) - LAST_SHOWN
    turns = [number for number, event in enumerate(trace) if number >= last or _TURNS.search(event)]
    shown = {near for turn in turns for near in range(turn - AROUND_SHOWN, turn + AROUND_SHOWN + 1)}
    hidden = 0
    for number, event in enumerate(trace):
        if number in shown:
            if hidden:
                yield f"          … {hidden} more"
            hidden = 0
            yield event
        else:
            hidden += 1


def _without_decisions(scenario: Scenario) -> Iterator[Scenario]:
    """Without what goes wrong between store calls, which no script holds."""
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
