"""Many runs on several processes, and what they add up to."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec

from lakestate.testing.simulation.faults import Mishap, Script
from lakestate.testing.simulation.run import RunResult, run_seed
from lakestate.testing.simulation.scenario import Scenario

CHUNK = 10
DECISIONS = frozenset(("superseded", "two drivers", "parts lost"))
"""What goes wrong without a store call of its own."""
_FAULTS = DECISIONS | {mishap.name.lower() for mishap in Mishap}


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
    cpu_s: float = 0.0

    @property
    def faults(self) -> int:
        """How many calls and decisions went wrong."""
        return sum(count for name, count in self.counts.items() if name in _FAULTS)

    def add(self, other: Sweep) -> None:
        """Count another sweep in."""
        self.runs += other.runs
        self.steps += other.steps
        self.crashes += other.crashes
        self.counts += other.counts
        self.failed += other.failed
        self.cpu_s += other.cpu_s

    @property
    def summary(self) -> str:
        """What was survived, in one line."""
        return (
            f"{self.runs:,} seeds, {self.steps:,} steps, {self.crashes:,} crashes and {self.faults:,} faults "
            f"survived, {len(self.failed)} failed; {self.cpu_s:,.0f} s of CPU"
        )

    def __str__(self) -> str:
        faults = {name: self.counts[name] for name in sorted(self.counts) if name in _FAULTS}
        others = {name: self.counts[name] for name in sorted(self.counts) if name not in _FAULTS}
        told = [", ".join(f"{name} {count:,}" for name, count in each.items()) for each in (faults, others)]
        return f"{self.summary}\n  faults: {told[0]}\n  and: {told[1]}"


class Journal:
    """A file with the sum of every chunk of seeds that is done: a long sweep goes on where it was stopped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done: set[int] = set()
        self.total = Sweep()
        for line in path.read_text().splitlines() if path.exists() else ():
            entry = msgspec.json.decode(line, type=_Entry)
            self._done.update(entry.seeds)
            self.total.add(entry.sweep())

    def is_done(self, task: Task) -> bool:
        """Whether the seed has been run."""
        return task.seed in self._done

    def add(self, tasks: list[Task], sweep: Sweep) -> None:
        """Write a chunk down."""
        failed = [(task.seed, why) for task, why in sweep.failed]
        seeds = [task.seed for task in tasks]
        entry = _Entry(seeds, sweep.steps, sweep.crashes, dict(sweep.counts), failed, sweep.cpu_s)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(entry) + b"\n")


class _Entry(msgspec.Struct):
    seeds: list[int]
    steps: int
    crashes: int
    counts: dict[str, int]
    failed: list[tuple[int, str]]
    cpu_s: float

    def sweep(self) -> Sweep:
        failed = [(Task(seed), why) for seed, why in self.failed]
        return Sweep(len(self.seeds), self.steps, self.crashes, Counter(self.counts), failed, self.cpu_s)


def sweep(
    tasks: Iterable[Task],
    *,
    processes: int = 2,
    seconds_max: float | None = None,
    journal: Journal | None = None,
    progress: Callable[[Sweep], None] | None = None,
) -> Sweep:
    """Run tasks until there are no more, or time is up, or somebody interrupts."""
    total = Sweep() if journal is None else journal.total
    ends_s = None if seconds_max is None else time.monotonic() + seconds_max
    chunks = _chunks(task for task in tasks if journal is None or not journal.is_done(task))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        running = [(chunk, pool.submit(run_tasks, chunk)) for chunk in islice(chunks, 2 * processes)]
        try:
            while running:
                chunk, future = running.pop(0)
                done = future.result()
                if journal is not None:
                    journal.add(chunk, done)
                total.add(done)
                if progress is not None:
                    progress(total)
                if ends_s is None or time.monotonic() < ends_s:
                    running += [(chunk, pool.submit(run_tasks, chunk)) for chunk in islice(chunks, 1)]
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
    return total


def run_tasks(tasks: list[Task]) -> Sweep:
    """Run some tasks here."""
    logging.getLogger("lakestate").setLevel(logging.CRITICAL)
    total = Sweep()
    for task in tasks:
        started_s = time.process_time()
        result = run_seed(task.seed, scenario=task.scenario, script=task.script)
        total.add(_summed(task, result, time.process_time() - started_s))
    return total


def _summed(task: Task, result: RunResult, cpu_s: float) -> Sweep:
    failed = [] if result.violation is None else [(task, str(result.violation))]
    return Sweep(1, result.steps, result.crashes, result.counts, failed, cpu_s)


def _chunks(tasks: Iterator[Task]) -> Iterator[list[Task]]:
    while chunk := list(islice(tasks, CHUNK)):
        yield chunk
