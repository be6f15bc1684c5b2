"""Many seeds on several processes, and what they add up to."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

from lakestate.testing.simulation.faults import Mishap, Script
from lakestate.testing.simulation.run import RunResult, run_seed
from lakestate.testing.simulation.scenario import Scenario

CHUNK = 10


@dataclass(frozen=True)
class Task:
    """One run to do: a seed, and maybe a scenario and a script of its own."""

    seed: int
    scenario: Scenario | None = None
    script: Script | None = None


@dataclass
class Sweep:
    """The sum of many runs."""

    runs: int = 0
    steps: int = 0
    crashes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[Task, str]] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """How long it has been going on."""
        return time.perf_counter() - self.started

    @property
    def faults(self) -> int:
        """How many calls and decisions went wrong."""
        names = {mishap.name.lower() for mishap in Mishap} | {"superseded", "two drivers"}
        return sum(count for name, count in self.counts.items() if name in names)

    def add(self, other: Sweep) -> None:
        """Count another sweep in."""
        self.runs += other.runs
        self.steps += other.steps
        self.crashes += other.crashes
        self.counts += other.counts
        self.failed += other.failed

    def __str__(self) -> str:
        rate = self.runs / max(self.seconds, 1e-9)
        details = ", ".join(f"{name} {count:,}" for name, count in sorted(self.counts.items()))
        return (
            f"{self.runs:,} runs in {self.seconds:,.0f} s ({rate:.1f}/s), {self.steps:,} store calls, "
            f"{self.crashes:,} crashes and {self.faults:,} faults survived, "
            f"{len(self.failed)} failed\n{details}"
        )


def sweep(
    tasks: Iterable[Task],
    *,
    processes: int = 2,
    seconds_max: float | None = None,
    progress: Callable[[Sweep], None] | None = None,
) -> Sweep:
    """Run tasks until there are no more, or time is up."""
    total = Sweep()
    chunks = _chunks(iter(tasks))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        running = [pool.submit(run_tasks, chunk) for chunk in islice(chunks, 2 * processes)]
        while running:
            total.add(running.pop(0).result())
            if progress is not None:
                progress(total)
            if seconds_max is None or total.seconds < seconds_max:
                running += [pool.submit(run_tasks, chunk) for chunk in islice(chunks, 1)]
    return total


def run_tasks(tasks: list[Task]) -> Sweep:
    """Run some tasks here."""
    logging.getLogger("lakestate").setLevel(logging.CRITICAL)
    total = Sweep()
    for task in tasks:
        result = run_seed(task.seed, scenario=task.scenario, script=task.script)
        total.add(_summed(task, result))
    return total


def _summed(task: Task, result: RunResult) -> Sweep:
    failed = [] if result.violation is None else [(task, str(result.violation))]
    return Sweep(1, result.steps, result.crashes, result.counts, failed)


def _chunks(tasks: Iterator[Task]) -> Iterator[list[Task]]:
    while chunk := list(islice(tasks, CHUNK)):
        yield chunk
