"""The simulator on the command line: `replay SEED`, `soak`, `exhaustive`."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from lakestate.testing.simulation.chance import chance
from lakestate.testing.simulation.exhaustive import PAIRED, pairs_of_crashes, single_faults
from lakestate.testing.simulation.faults import Mishap, parsed_script
from lakestate.testing.simulation.run import run_seed
from lakestate.testing.simulation.scenario import Scenario
from lakestate.testing.simulation.shrink import shrunk
from lakestate.testing.simulation.sweep import Journal, Sweep, Task, sweep

SEEDS_TOLD = 500


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands; 1 if a promise was broken."""
    given = _parser().parse_args(arguments)
    logging.getLogger("lakestate").setLevel(logging.CRITICAL)
    return {"replay": _replay, "soak": _soak, "exhaustive": _exhaustive}[given.command](given)


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
    soak.add_argument("--seeds", type=int, help="how many; without end if not given")
    soak.add_argument("--journal", type=Path, help="keep the figures here, and go on from what is there")
    every = commands.add_parser("exhaustive", help="a fault at every store call of a small history")
    every.add_argument("--pairs", action="store_true", help="two crashes, at every pair of calls")
    every.add_argument("--share", type=int, default=1, help="every so many-th first and second")
    for command in (soak, every):
        command.add_argument("--processes", type=int, default=2)
    return parser


def _replay(given: argparse.Namespace) -> int:
    scenario = Scenario.drawn(chance(given.seed, "scenario"))
    for setting in given.set:
        scenario = scenario.changed(setting)
    script = None if given.faults is None else parsed_script(given.faults)
    if given.shrink:
        print(shrunk(given.seed, scenario, script))
        return 1
    result = run_seed(given.seed, scenario=scenario, script=script, traced=True)
    print("\n".join(result.trace))
    print(result.violation or f"no promise was broken in {result.steps} store calls")
    return int(result.violation is not None)


def _soak(given: argparse.Namespace) -> int:
    seeds = count(given.first) if given.seeds is None else range(given.first, given.first + given.seeds)
    journal = None if given.journal is None else Journal(given.journal)
    told = _progress()
    return _told(sweep(map(Task, seeds), processes=given.processes, journal=journal, progress=told))


def _exhaustive(given: argparse.Namespace) -> int:
    tasks = pairs_of_crashes(PAIRED, given.share) if given.pairs else single_faults(tuple(Mishap))
    return _told(sweep(tasks, processes=given.processes, progress=_progress()))


def _progress() -> Callable[[Sweep], None]:
    """Tells of every few hundred seeds, and of every failure at once."""
    failures = 0

    def progress(so_far: Sweep) -> None:
        nonlocal failures
        if so_far.runs % SEEDS_TOLD == 0 or len(so_far.failed) > failures:
            print(so_far.summary, *(f"\n  {task.seed}: {why}" for task, why in so_far.failed[failures:]))
            sys.stdout.flush()
            failures = len(so_far.failed)

    return progress


def _told(total: Sweep) -> int:
    print(total)
    if not total.failed:
        return 0
    for task, why in total.failed[:20]:
        print(f"seed {task.seed} {task.script or ''}: {why}")
    task, _ = total.failed[0]
    print(f"\nthe first of them in its smallest form:\n{shrunk(task.seed, task.scenario, task.script)}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
