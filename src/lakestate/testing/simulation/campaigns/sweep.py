"""Many runs in several processes, and their totals."""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path

import msgspec

import lakestate
from lakestate.errors import InvalidInputError
from lakestate.testing.simulation.faults import FaultKind, Script, format_script
from lakestate.testing.simulation.random_streams import random_stream
from lakestate.testing.simulation.run import RunResult, run_seed
from lakestate.testing.simulation.scenario import Scenario

CHUNK = 10
DECISIONS = frozenset(("superseded", "two drivers", "parts lost"))
"""Faults without a store call of their own."""
_FAULTS = DECISIONS | {fault.name.lower() for fault in FaultKind}


@dataclass(frozen=True)
class Task:
    """One run to do: a seed, and optionally a scenario and a script."""

    seed: int
    scenario: Scenario | None = None
    script: Script | None = None

    @classmethod
    def with_table(cls, seed: int) -> Task:
        """The run of a seed that writes to a table."""
        return cls(seed, Scenario.draw_with_table(random_stream(seed, "scenario")))

    @property
    def command(self) -> str:
        """The shell command that repeats the run.

        >>> Task(7).command
        'python -m lakestate.testing.simulation replay 7'
        """
        arguments = ["replay", str(self.seed)]
        if self.script is not None:
            arguments += ["--faults", format_script(self.script)]
        if self.scenario is not None:
            drawn = Scenario.draw(random_stream(self.seed, "scenario"))
            arguments += [part for change in self.scenario.changes_from(drawn) for part in ("--set", change)]
        return f"python -m lakestate.testing.simulation {shlex.join(arguments)}"


@dataclass
class Sweep:
    """Totals of many runs."""

    runs: int = 0
    steps: int = 0
    crashes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[Task, str]] = field(default_factory=list)
    cpu_s: float = 0.0
    is_scripted: bool = False
    """Whether runs had scripts of faults. Many runs then share one seed."""

    @property
    def faults(self) -> int:
        """The number of faults, at calls and at decisions."""
        return sum(count for name, count in self.counts.items() if name in _FAULTS)

    def add(self, other: Sweep) -> None:
        """Add the totals of another sweep."""
        self.runs += other.runs
        self.steps += other.steps
        self.crashes += other.crashes
        self.counts += other.counts
        self.failed += other.failed
        self.cpu_s += other.cpu_s
        self.is_scripted |= other.is_scripted

    @property
    def summary(self) -> str:
        """The totals in one line."""
        runs = f"{self.runs:,} {'runs' if self.is_scripted else 'seeds'}"
        return (
            f"{runs}, {self.steps:,} steps, {self.crashes:,} crashes and {self.faults:,} faults "
            f"survived, {len(self.failed)} failed; {self.cpu_s:,.0f} s of CPU"
        )

    def __str__(self) -> str:
        faults = {name: self.counts[name] for name in sorted(self.counts) if name in _FAULTS}
        others = {name: self.counts[name] for name in sorted(self.counts) if name not in _FAULTS}
        lines = [", ".join(f"{name} {count:,}" for name, count in each.items()) for each in (faults, others)]
        return f"{self.summary}\n  faults: {lines[0]}\n  and: {lines[1]}"


class Journal:
    """A file with the totals of every finished chunk of seeds, from which a stopped sweep continues.

    Figures of other code say nothing about this code, so they are refused.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._code = package_digest()
        self._done: set[int] = set()
        self.total = Sweep()
        # Also opened for writing, so that a file that cannot be written is refused now and not hours later.
        with path.open("a+b") as file:
            file.seek(0)
            lines = file.read().splitlines()
        for number, line in enumerate(lines, 1):
            entry = self._entry(number, line)
            self._done.update(entry.seeds)
            self.total.add(entry.sweep())

    def _entry(self, number: int, line: bytes) -> _Entry:
        try:
            entry = msgspec.json.decode(line, type=_Entry)
        except ValueError as cause:
            raise InvalidInputError(
                "not a journal of a sweep",
                object_name=f"{self._path}, line {number}",
                found=cause,
                action="remove the line if it was cut off, or name another file",
            ) from cause
        if entry.code != self._code:
            raise InvalidInputError(
                "the journal is of other code",
                object_name=str(self._path),
                found=f"code {entry.code or 'unknown'} in line {number}",
                expected=f"code {self._code}",
                action="name another file, or remove this one: its figures are not of the current code",
            )
        return entry

    def is_done(self, task: Task) -> bool:
        """Whether the seed has been run already."""
        return task.seed in self._done

    def add(self, tasks: list[Task], sweep: Sweep) -> None:
        """Append the totals of a chunk."""
        failed = [(task.seed, why) for task, why in sweep.failed]
        seeds = [task.seed for task in tasks]
        counts = dict(sweep.counts)
        entry = _Entry(seeds, sweep.steps, sweep.crashes, counts, failed, sweep.cpu_s, self._code)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(entry) + b"\n")


class _Entry(msgspec.Struct):
    seeds: list[int]
    steps: int
    crashes: int
    counts: dict[str, int]
    failed: list[tuple[int, str]]
    cpu_s: float
    code: str = ""

    def sweep(self) -> Sweep:
        failed = [(Task(seed), why) for seed, why in self.failed]
        return Sweep(len(self.seeds), self.steps, self.crashes, Counter(self.counts), failed, self.cpu_s)


@cache
def package_digest() -> str:
    """The digest of this package, computed once: a process keeps the code that it has loaded."""
    return code_digest(Path(lakestate.__file__).parent)


def code_digest(root: Path) -> str:
    """The digest of the names and contents of a package's Python files."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        for part in (path.relative_to(root).as_posix().encode(), path.read_bytes()):
            digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()[:16]


def sweep(
    tasks: Iterable[Task],
    *,
    processes: int = 2,
    seconds_max: float | None = None,
    journal: Journal | None = None,
    progress: Callable[[Sweep], None] | None = None,
) -> Sweep:
    """Run tasks until none is left, the time is up, or the user interrupts."""
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
    """Run tasks in this process."""
    logging.getLogger("lakestate").setLevel(logging.CRITICAL)
    total = Sweep()
    for task in tasks:
        started_s = time.process_time()
        result = run_seed(task.seed, scenario=task.scenario, script=task.script)
        total.add(_sweep_of(task, result, time.process_time() - started_s))
    return total


def _sweep_of(task: Task, result: RunResult, cpu_s: float) -> Sweep:
    failed = [] if result.violation is None else [(task, str(result.violation))]
    is_scripted = task.script is not None
    return Sweep(1, result.steps, result.crashes, result.counts, failed, cpu_s, is_scripted)


def _chunks(tasks: Iterator[Task]) -> Iterator[list[Task]]:
    while chunk := list(islice(tasks, CHUNK)):
        yield chunk
