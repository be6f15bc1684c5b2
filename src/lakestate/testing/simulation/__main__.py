"""The simulator on the command line: `replay SEED`, `soak`, `exhaustive`."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path

from lakestate.errors import InvalidInputError
from lakestate.testing.simulation.campaigns.exhaustive import PAIRED, pairs_of_crashes, single_faults
from lakestate.testing.simulation.campaigns.shrink import shrink
from lakestate.testing.simulation.campaigns.sweep import Journal, Sweep, Task, sweep
from lakestate.testing.simulation.faults import FaultKind, Script, parse_script
from lakestate.testing.simulation.random_streams import random_stream
from lakestate.testing.simulation.run import RunResult, run_seed
from lakestate.testing.simulation.scenario import Scenario

SEEDS_TOLD = 500
FAILURES_TOLD = 20
BROKEN = 1
NOT_AS_ASKED = 2
"""The command could not run as given. argparse uses the same code."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands. Returns 1 if a promise was broken, 2 if the command could not run as given."""
    parser = _parser()
    given = parser.parse_args(arguments)
    logging.getLogger("lakestate").setLevel(logging.CRITICAL)
    # Only the arguments are read within `try`: an error of a run is a finding, and keeps its traceback.
    try:
        run = {"replay": _replay, "soak": _soak, "exhaustive": _exhaustive}[given.command](given)
    except (InvalidInputError, OSError) as error:
        parser.error(str(error))
    return run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lakestate.testing.simulation")
    commands = parser.add_subparsers(dest="command", required=True)
    replay = commands.add_parser("replay", help="run one seed again and print every event")
    replay.add_argument("seed", type=int)
    replay.add_argument("--faults", help="exactly these faults: actor:call=kind,…")
    replay.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="change the scenario"
    )
    replay.add_argument("--shrink", action="store_true", help="look for the smallest failure")
    soak = commands.add_parser("soak", help="run seeds until stopped")
    soak.add_argument("--first", type=int, default=0)
    soak.add_argument("--seeds", type=_positive, help="how many; endless if not given")
    soak.add_argument("--tables", action="store_true", help="histories with tables, of Delta and Iceberg")
    soak.add_argument("--journal", type=Path, help="store figures in this file, and continue from it")
    every = commands.add_parser("exhaustive", help="a fault at every store call of a small history")
    every.add_argument("--pairs", action="store_true", help="two crashes, at every pair of calls")
    every.add_argument(
        "--share", type=_positive, default=1, help="take only every n-th first and second crash"
    )
    for command in (soak, every):
        command.add_argument("--processes", type=_positive, default=2)
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _replay(given: argparse.Namespace) -> Callable[[], int]:
    scenario = Scenario.draw(random_stream(given.seed, "scenario"))
    for setting in given.set:
        scenario = scenario.with_setting(setting)
    script = None if given.faults is None else parse_script(given.faults)
    return partial(_run_shrink if given.shrink else _run_replay, given.seed, scenario, script)


def _run_replay(seed: int, scenario: Scenario, script: Script | None) -> int:
    result = run_seed(seed, scenario=scenario, script=script, traced=True)
    print(*result.trace, sep="\n")
    print(result.violation or f"no promise was broken in {result.steps} store calls")
    return _exit_code(result, script)


def _run_shrink(seed: int, scenario: Scenario, script: Script | None) -> int:
    result = run_seed(seed, scenario=scenario, script=script)
    if result.violation is not None:
        print(shrink(seed, scenario, script))
    else:
        print(f"seed {seed} keeps every promise: there is nothing to shrink")
    return _exit_code(result, script)


def _exit_code(result: RunResult, script: Script | None) -> int:
    """A broken promise comes first: it may have ended the run before the other faults could strike."""
    idle = list(_faults_without_effect(result, script or {}))
    print(*idle, sep="\n", end="\n" if idle else "")
    if result.violation is not None:
        return BROKEN
    return NOT_AS_ASKED if idle else 0


def _faults_without_effect(result: RunResult, script: Script) -> Iterator[str]:
    """The faults that did not strike, and why."""
    for call, fault in sorted(script.items()):
        if call not in result.struck:
            operation = result.calls.get(call)
            why = "there was no such call" if operation is None else f"it cannot at a {operation.value}"
            yield f"{call}={fault.name.lower()} did not strike: {why}"


def _soak(given: argparse.Namespace) -> Callable[[], int]:
    seeds = count(given.first) if given.seeds is None else range(given.first, given.first + given.seeds)
    make_task = Task.with_table if given.tables else Task
    if given.tables and given.journal is not None:
        raise InvalidInputError(
            "a journal knows histories by their seeds, and those with tables have the same seeds",
            object_name=str(given.journal),
            action="leave out --journal or --tables",
        )
    journal = None if given.journal is None else Journal(given.journal)
    return partial(_run_sweep, map(make_task, seeds), given.processes, journal)


def _exhaustive(given: argparse.Namespace) -> Callable[[], int]:
    tasks = pairs_of_crashes(PAIRED, given.share) if given.pairs else single_faults(tuple(FaultKind))
    return partial(_run_sweep, tasks, given.processes)


def _run_sweep(tasks: Iterator[Task], processes: int, journal: Journal | None = None) -> int:
    total = sweep(tasks, processes=processes, journal=journal, progress=_progress())
    print(total)
    if not total.failed:
        return 0
    print(*map(_failure_lines, total.failed[:FAILURES_TOLD]), sep="\n")
    task, _ = total.failed[0]
    print(f"\nthe first of them in its smallest form:\n{shrink(task.seed, task.scenario, task.script)}")
    return BROKEN


def _failure_lines(failed: tuple[Task, str]) -> str:
    task, why = failed
    return f"seed {task.seed}: {why}\n  replay: {task.command}"


def _progress() -> Callable[[Sweep], None]:
    """A callback that prints every few hundred seeds, and every failure immediately."""
    failures = 0

    def progress(so_far: Sweep) -> None:
        nonlocal failures
        if so_far.runs % SEEDS_TOLD == 0 or len(so_far.failed) > failures:
            print(so_far.summary, *map(_failure_lines, so_far.failed[failures:]), sep="\n", flush=True)
            failures = len(so_far.failed)

    return progress


if __name__ == "__main__":
    sys.exit(main())
