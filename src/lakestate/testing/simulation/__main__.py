"""The simulator on the command line: `replay SEED`, `soak`, `exhaustive`."""

from __future__ import annotations

import argparse
import ast
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from lakestate.testing.simulation.chance import chance
from lakestate.testing.simulation.exhaustive import SMALL, pairs_of_crashes, single_faults
from lakestate.testing.simulation.faults import Mishap, parsed_script
from lakestate.testing.simulation.run import run_seed
from lakestate.testing.simulation.scenario import Scenario
from lakestate.testing.simulation.shrink import shrunk
from lakestate.testing.simulation.sweep import Sweep, Task, sweep


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m lakestate.testing.simulation")
    commands = parser.add_subparsers(dest="command", required=True)
    replay = commands.add_parser("replay", help="run one seed again and print every event")
    replay.add_argument("seed", type=int)
    replay.add_argument("--faults", help="exactly these faults: actor:call=kind,…")
    replay.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    replay.add_argument("--shrink", action="store_true", help="look for the smallest failure")
    soak = commands.add_parser("soak", help="run seeds until stopped")
    soak.add_argument("--first", type=int, default=0)
    soak.add_argument("--seeds", type=int, help="how many; without end if not given")
    soak.add_argument("--processes", type=int, default=2)
    every = commands.add_parser("exhaustive", help="a fault at every store call of a small history")
    every.add_argument("--pairs", action="store_true", help="two crashes, at every pair of calls")
    given = parser.parse_args(arguments)
    logging.getLogger("lakestate").setLevel(logging.CRITICAL)
    return {"replay": _replay, "soak": _soak, "exhaustive": _exhaustive}[given.command](given)


def _replay(given: argparse.Namespace) -> int:
    if given.shrink:
        print(shrunk(given.seed))
        return 1
    scenario = Scenario.drawn(chance(given.seed, "scenario"))
    for item in given.set:
        name, _, value = item.partition("=")
        scenario = replace(scenario, **{name: ast.literal_eval(value)})
    script = None if given.faults is None else parsed_script(given.faults)
    result = run_seed(given.seed, scenario=scenario, script=script, traced=True)
    print("\n".join(result.trace))
    print(result.violation or f"no promise was broken in {result.steps} store calls")
    return int(result.violation is not None)


def _soak(given: argparse.Namespace) -> int:
    seeds = count(given.first) if given.seeds is None else range(given.first, given.first + given.seeds)
    return _told(sweep(map(Task, seeds), processes=given.processes, progress=_progress))


def _exhaustive(given: argparse.Namespace) -> int:
    pairs = replace(SMALL, drivers=2, rows=4)
    return _told(sweep(pairs_of_crashes(pairs) if given.pairs else single_faults(tuple(Mishap))))


def _progress(so_far: Sweep) -> None:
    if so_far.runs % 500 == 0 or so_far.failed:
        print(str(so_far).splitlines()[0], *(f"\n  {task.seed}: {why}" for task, why in so_far.failed[:5]))
        sys.stdout.flush()


def _told(total: Sweep) -> int:
    print(total)
    for task, why in total.failed[:20]:
        print(f"seed {task.seed} {task.script or ''}: {why}")
    return int(bool(total.failed))


if __name__ == "__main__":
    sys.exit(main())
