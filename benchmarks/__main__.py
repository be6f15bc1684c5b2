"""Runs benchmarks one after the other: all of them, or those that are named.

    python -m benchmarks [--quick] [--list] [NAME …]

Each runs in a process of its own, and its JSON is written as soon as it is done. One that fails is reported,
the others still run, and the exit code is 1. A whole run replaces the stored results, the page and the
tables of the README; a quick run writes below `benchmarks/results/quick`, which is not kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import psutil
from rich.console import Console

from benchmarks.core import child
from benchmarks.core.catalogue import LOGS, QUICK, RESULTS, benchmark_modules, declared_benchmarks
from benchmarks.core.declaration import Benchmark
from benchmarks.core.environment import current_environment
from benchmarks.core.page import aims_table, misses
from benchmarks.core.progress import Estimate, ProgressBar
from benchmarks.core.result import BenchmarkResult, load_result, store_failed_result
from benchmarks.core.run import Scale
from benchmarks.render import load_results, render_folder
from benchmarks.render import main as render

UNKNOWN_SECONDS = 60.0
LOG_TAIL = 30
DEADLINE_S = child.DEADLINE_S + 120.0
"""When a benchmark that has not given up itself is killed."""


def main(arguments: list[str]) -> int:
    names, known = [each for each in arguments if not each.startswith("-")], [*benchmark_modules()]
    if "--list" in arguments:
        print("\n".join(known))
        return 0
    if unknown := sorted({*names} - {*known}):
        print(f"no benchmark named {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    scale = Scale.QUICK if "--quick" in arguments else Scale.WHOLE
    declared = {each.name: each for each in declared_benchmarks()}
    chosen = names or [name for name in _in_order(known, declared) if _belongs(name, declared, scale)]
    failed = run_all(chosen, declared, scale)
    if scale is Scale.QUICK:
        render_folder(QUICK, [pair for pair in load_results(QUICK) if pair[1] is not None])
    else:
        render([])
    folder = QUICK if scale is Scale.QUICK else RESULTS
    print(f"\nThe page: {os.path.relpath(folder / 'README.md')}")
    if failed:
        print(f"Failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _in_order(known: list[str], declared: dict[str, Benchmark]) -> list[str]:
    return [*declared, *(name for name in known if name not in declared)]


def _belongs(name: str, declared: dict[str, Benchmark], scale: Scale) -> bool:
    return scale is Scale.WHOLE or (name in declared and declared[name].in_quick)


def run_all(names: list[str], declared: dict[str, Benchmark], scale: Scale) -> list[str]:
    """Run benchmarks and print their aims; return those that failed."""
    console, folder, failed = Console(), QUICK if scale is Scale.QUICK else RESULTS, []
    bar = ProgressBar(Estimate({name: _expected(name, declared, scale, folder) for name in names}), console)
    LOGS.mkdir(parents=True, exist_ok=True)
    with bar.shown():
        for name in names:
            bar.begin(name)
            code = run_one(name, scale, folder, bar)
            verdicts = {0: "done", child.CONTENDER_FAILED: "a contender failed", child.FAILED: "failed"}
            bar.end(verdicts.get(code, f"failed with code {code}"))
            if code:
                failed.append(name)
            if code not in verdicts:
                _store_end(name, scale, folder, code)
            if code not in (0, child.CONTENDER_FAILED):
                console.print(
                    "\n".join(_log(name).splitlines()[-LOG_TAIL:]),
                    markup=False,
                    highlight=False,
                    soft_wrap=True,
                )
            else:
                console.print(_summary(name, declared, folder), markup=False, highlight=False, soft_wrap=True)
    return failed


def run_one(name: str, scale: Scale, folder: Path, bar: ProgressBar) -> int:
    """Run one benchmark in a process; its exit code. One that hangs is killed."""
    reading, writing = os.pipe()
    with (LOGS / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            child_command(name, scale, folder, writing),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[writing],
            cwd=Path(__file__).parents[1],
        )
        os.close(writing)
        deadline = threading.Timer(DEADLINE_S, kill_with_children, [process.pid])
        deadline.start()
        try:
            with os.fdopen(reading) as steps:
                for step in steps:
                    bar.step(step.strip())
            return process.wait()
        finally:
            deadline.cancel()


def _store_end(name: str, scale: Scale, folder: Path, code: int) -> None:
    """Say for a process that was killed, or ended without a word, that it has."""
    reason = f"its process ended with code {code}"
    store_failed_result(
        folder, BenchmarkResult(name, scale.value, current_environment(), 0, (), failure=reason)
    )


def child_command(name: str, scale: Scale, folder: Path, pipe: int) -> list[str]:
    """What runs one benchmark."""
    return [sys.executable, "-m", "benchmarks.core.child", name, scale.value, str(folder), str(pipe)]


def kill_with_children(pid: int) -> None:
    """Kill a process and everything that it started: Spark, servers, Python workers."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in [*process.children(recursive=True), process]:
            with suppress(psutil.Error):
                each.kill()


def _expected(name: str, declared: dict[str, Benchmark], scale: Scale, folder: Path) -> float:
    last = load_result(folder, name)
    if last is not None and last.scale == scale.value:
        return last.seconds
    if name not in declared:
        return UNKNOWN_SECONDS
    return declared[name].seconds[0 if scale is Scale.QUICK else 1]


def _summary(name: str, declared: dict[str, Benchmark], folder: Path) -> str:
    result = load_result(folder, name)
    if name not in declared or result is None:
        return _log(name)
    parts = []
    for question in declared[name].questions:
        if question.aims:
            parts += [aims_table(question, question.aims, result), misses(question, question.aims, result)]
    parts += [f"no figure of {each.contender}: {each.reason}" for each in result.absences]
    return "\n".join(part for part in parts if part)


def _log(name: str) -> str:
    return (LOGS / f"{name}.log").read_text(errors="replace")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
