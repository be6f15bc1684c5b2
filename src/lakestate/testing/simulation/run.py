"""One run of a simulation: from a seed to a result, and the checks at its end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random

from lakestate.errors import LakestateError
from lakestate.storage.parallel import run_sequentially
from lakestate.testing.faults import Operation
from lakestate.testing.simulation.checks.leaks import check_retention, check_uploads
from lakestate.testing.simulation.checks.monitor import Monitor
from lakestate.testing.simulation.checks.read_back import row_difference
from lakestate.testing.simulation.cluster.actors import REFUSED, run_reader, run_supervisor, run_tagger
from lakestate.testing.simulation.cluster.delivery import check_delivered
from lakestate.testing.simulation.cluster.forks import run_change_reader, run_forker
from lakestate.testing.simulation.cluster.neighbour import run_neighbour
from lakestate.testing.simulation.cluster.scheduler import Actor, SimulationOver
from lakestate.testing.simulation.cluster.small_limits import separate_runs, small_limits
from lakestate.testing.simulation.cluster.world import TraceEvent, World
from lakestate.testing.simulation.faults import CallId, FaultKind, Script
from lakestate.testing.simulation.job import JobCodeError, SimulatedJob
from lakestate.testing.simulation.promises import BrokenPromiseError, Promise
from lakestate.testing.simulation.random_streams import random_stream
from lakestate.testing.simulation.scenario import Scenario
from lakestate.testing.simulation.seen import Row
from lakestate.testing.simulation.tables.opening import open_table, spawn_visitor
from lakestate.testing.simulation.user_counts import UserCountsJob

JobFactory = Callable[[Random, Scenario], SimulatedJob]


@dataclass
class RunResult:
    """The result of one run."""

    seed: int
    violation: BrokenPromiseError | None
    steps: int
    crashes: int
    struck: dict[CallId, FaultKind] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    trace: list[TraceEvent] = field(default_factory=list)
    calls: dict[CallId, Operation] = field(default_factory=dict)
    seconds: float = 0.0


def user_counts_job(random: Random, scenario: Scenario) -> SimulatedJob:
    """The simulator's own job."""
    return UserCountsJob(random, scenario.rows, commits=scenario.commits)


def run_seed(
    seed: int,
    *,
    scenario: Scenario | None = None,
    script: Script | None = None,
    make_job: JobFactory = user_counts_job,
    traced: bool = False,
) -> RunResult:
    """Run one history. Raises what the job's own code raises.

    >>> run_seed(1).violation is None
    True
    """
    started = time.perf_counter()
    scenario = scenario or Scenario.draw(random_stream(seed, "scenario"))
    job = make_job(random_stream(seed, "rows"), scenario)
    world = World(seed, scenario, job, script, traced=traced)
    Monitor(world)
    try:
        limits = small_limits() if scenario.small_limits else nullcontext()
        runs = nullcontext() if scenario.absorbs else separate_runs()
        with limits, runs, open_table(world), suppress(JobCodeError):
            _run_actors(world)
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


def _run_actors(world: World) -> None:
    scheduler = world.scheduler
    first = scheduler.spawn("supervisor", lambda: run_supervisor(world))
    actors = [first]
    actors += [
        scheduler.spawn(f"tagger {number}", partial(run_tagger, world, number))
        for number in range(world.scenario.tags)
    ]
    actors += [
        scheduler.spawn(f"reader {number}", partial(run_reader, world, number))
        for number in range(world.scenario.readers)
    ]
    actors += [
        scheduler.spawn(f"forker {number}", partial(run_forker, world, number))
        for number in range(world.scenario.forks)
    ]
    actors += [
        scheduler.spawn(f"change reader {number}", partial(run_change_reader, world, number))
        for number in range(world.scenario.change_readers)
    ]
    if world.scenario.has_neighbour:
        actors.append(scheduler.spawn("neighbour", partial(run_neighbour, world)))
    actors += spawn_visitor(world)
    scheduler.run()
    if world.violation is None:
        _raise_unexpected(actors)
        scheduler.over = False
        with run_sequentially(), suppress(SimulationOver):
            try:
                check_final_state(world)
            except LakestateError as error:
                world.fail(Promise.FINAL_READABLE, error)


def _raise_unexpected(actors: list[Actor]) -> None:
    for actor in actors:
        if isinstance(actor.error, Exception):
            raise actor.error


def check_final_state(world: World) -> None:
    """Check that all rows are there exactly once, and that every retained epoch is unchanged."""
    monitor, job = world.monitor, world.job
    world.acting = None
    state = {}
    for epoch in monitor.retained_epochs():
        state = monitor.check_restorable(epoch)
    check_retention(world)
    if world.counts[REFUSED]:
        # The store lost what it had acknowledged. The job stopped without showing wrong output.
        return
    _check_target(world, state)
    check_delivered(world)
    world.table_checks.check_final(state)
    if job.output(monitor.seen) is not None:
        for sink_id in world.outputs:
            visible = monitor.visible(sink_id)
            difference = monitor.output_difference(sink_id)
            if difference:
                world.fail(Promise.OUTPUT_COMPLETE, f"{sink_id}: {difference}")
            wrong = None if monitor.has_gone_back else job.check_consistency(state, visible)
            if wrong:
                world.fail(Promise.OUTPUT_MATCHES_STATE, f"{sink_id}: {wrong}")
        check_uploads(world)


def _check_target(world: World, state: Mapping[str, Sequence[Row]]) -> None:
    """Check that the target of `on_commit` has everything, once, and of the attempts that counted."""
    job, waiting = world.job, world.monitor.commits.open_epochs
    if waiting:
        world.fail(Promise.TARGET_EXACT, f"epochs {waiting} were never committed")
    expected = job.committed(world.monitor.seen)
    if expected is None:
        return
    found = job.target()
    difference = row_difference(job, found, expected)
    if difference:
        world.fail(Promise.TARGET_EXACT, difference)
    wrong = job.check_consistency(state, found)
    if wrong:
        world.fail(Promise.OUTPUT_MATCHES_STATE, f"the target of on_commit: {wrong}")
