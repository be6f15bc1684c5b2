"""One run of a simulation: from a seed to a result, and the checks at its end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random

from lakestate.errors import LakestateError
from lakestate.storage.parallel import run_sequentially
from lakestate.testing.faults import Operation
from lakestate.testing.simulation.actors import REFUSED, read_now_and_then, supervise, tag_now_and_then
from lakestate.testing.simulation.chance import chance
from lakestate.testing.simulation.faults import CallId, Mishap, Script
from lakestate.testing.simulation.job import JobCodeError, SimulatedJob
from lakestate.testing.simulation.leaks import check_retention, check_uploads
from lakestate.testing.simulation.ledger import LedgerJob
from lakestate.testing.simulation.oracle import same_rows
from lakestate.testing.simulation.scenario import Scenario
from lakestate.testing.simulation.scheduler import Actor, SimulationOver
from lakestate.testing.simulation.small_limits import small_limits
from lakestate.testing.simulation.watch import Watch
from lakestate.testing.simulation.world import BrokenPromiseError, World

JobOf = Callable[[Random, Scenario], SimulatedJob]


@dataclass
class RunResult:
    """What came of one run."""

    seed: int
    violation: BrokenPromiseError | None
    steps: int
    crashes: int
    struck: dict[CallId, Mishap] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)
    calls: dict[CallId, Operation] = field(default_factory=dict)
    seconds: float = 0.0


def ledger_job(random: Random, scenario: Scenario) -> SimulatedJob:
    """The job of the simulator's own."""
    return LedgerJob(random, scenario.rows)


def run_seed(
    seed: int,
    *,
    scenario: Scenario | None = None,
    script: Script | None = None,
    job_of: JobOf = ledger_job,
    traced: bool = False,
) -> RunResult:
    """Live through one history. What the job's own code raises is raised here.

    >>> run_seed(1).violation is None
    True
    """
    started = time.perf_counter()
    scenario = scenario or Scenario.drawn(chance(seed, "scenario"))
    job = job_of(chance(seed, "rows"), scenario)
    world = World(seed, scenario, job, script, traced=traced)
    Watch(world)
    try:
        with small_limits() if scenario.small_limits else nullcontext(), suppress(JobCodeError):
            _live(world)
    finally:
        world.close()
    if job.error is not None:
        raise job.error
    return RunResult(
        seed,
        world.violation,
        world.steps,
        world.crashes,
        world.faults.struck,
        world.counts,
        world.trace or [],
        world.faults.calls,
        time.perf_counter() - started,
    )


def _live(world: World) -> None:
    scheduler = world.scheduler
    first = scheduler.spawn("supervisor", lambda: supervise(world))
    actors = [first]
    actors += [
        scheduler.spawn(f"tagger {number}", partial(tag_now_and_then, world, number))
        for number in range(world.scenario.tags)
    ]
    actors += [
        scheduler.spawn(f"reader {number}", partial(read_now_and_then, world, number))
        for number in range(world.scenario.readers)
    ]
    scheduler.run()
    if world.violation is None:
        _raise_unmeant(actors)
        scheduler.over = False
        with run_sequentially(), suppress(SimulationOver):
            try:
                check_the_end(world)
            except LakestateError as error:
                world.fail("what is there at the end can be read", error)


def _raise_unmeant(actors: list[Actor]) -> None:
    for actor in actors:
        if isinstance(actor.error, Exception):
            raise actor.error


def check_the_end(world: World) -> None:
    """All rows are in, none is twice, and every retained epoch is what it was."""
    watch, job = world.watch, world.job
    world.acting = None
    state = {}
    for epoch in watch.retained():
        state = watch.check_restorable(epoch)
    check_retention(world)
    if world.counts[REFUSED]:
        # The store lost what it had acknowledged. Nothing wrong was shown, which is all one can ask.
        return
    expected = job.output(job.rows)
    if expected is not None:
        for sink_id in world.outputs:
            visible = watch.visible(sink_id)
            difference = same_rows(job, visible, expected)
            if difference:
                world.fail("output has every row exactly once", f"{sink_id}: {difference}")
            wrong = job.check_together(state, visible)
            if wrong:
                world.fail("state and output are of the same attempts", f"{sink_id}: {wrong}")
        check_uploads(world)
