"""Actors that share epochs with the job: those that fork it, and registered readers of its changes.

A fork is made of any epoch, then merged and retained like a job of its own, and forked again. A reader keeps
the epoch that it has read, reads the next one, and then gives the first one up.
"""

from __future__ import annotations

from lakestate.coordinator.claim import claim_generation
from lakestate.coordinator.retention.known_references import KnownReferences
from lakestate.coordinator.retention.retain import read_references, retain_epochs, retain_known_epochs
from lakestate.coordinator.retention.tags import create_tag, delete_tag
from lakestate.errors import ConflictError, LakestateError, NotFoundError
from lakestate.protocol.resolve import Damaged
from lakestate.protocol.retention import RetentionPolicy
from lakestate.protocol.values import Epoch
from lakestate.repair.compacting import compact_job
from lakestate.repair.forking import fork
from lakestate.testing.simulation.checks.forks import FORKS
from lakestate.testing.simulation.checks.read_back import read_state, row_difference
from lakestate.testing.simulation.cluster.process import HOUR_MS, Process, SimulatedBackend
from lakestate.testing.simulation.cluster.world import JOB_ID, World
from lakestate.testing.simulation.promises import Promise
from lakestate.testing.simulation.random_streams import random_stream
from lakestate.testing.simulation.scenario import EAGER
from lakestate.testing.simulation.seen import Seen
from lakestate.testing.simulation.stores.objects import SimulatedObjects

ATTEMPTS = 4
READS = 5


def run_forker(world: World, number: int) -> None:
    """Fork the job, again and again if that fails, and work with the fork."""
    # A stream of its own, so that leaving forks out does not change what other actors draw.
    random = random_stream(world.seed, f"forker {number}")
    job_id, chosen = f"{FORKS}{number}", None
    for attempt in range(ATTEMPTS):
        world.scheduler.sleep(int(random.random() * 2_000))
        process = Process(world, f"f{number}x{attempt}", "somewhere")
        backend = SimulatedBackend(process, process.client(world.state))
        try:
            epochs = backend.objects(JOB_ID).list_epochs()
            if not epochs:
                continue
            chosen = chosen or random.choice([epochs[0], *epochs])
            made = fork(backend, JOB_ID, job_id, chosen)
            world.counts["forks"] += 1
            _check_fork(world, backend, job_id, world.monitor.seen_by_epoch(made.parent.epoch))
            world.scheduler.sleep(int(random.random() * random.choice([2_000, 2 * HOUR_MS])))
            _use_fork(world, backend, job_id, made.parent.epoch)
            return
        except (NotFoundError, ConflictError) as refused:
            world.note(f"{process.name}: {refused}")
            chosen = None if _has_no_fence(world, job_id) else chosen
        except Exception as error:  # noqa: BLE001 - judged
            world.check_error(process, error, is_zombie=isinstance(error, LakestateError))


def _has_no_fence(world: World, job_id: str) -> bool:
    """Whether nothing says yet which epoch a fork begins with."""
    return SimulatedObjects(world.state, job_id).read_fence() is None


def _use_fork(world: World, backend: SimulatedBackend, job_id: str, epoch: Epoch) -> None:
    """Merge all of its files, retain it, and fork it again."""
    seen = world.monitor.seen_by_epoch(epoch)
    objects, known = backend.objects(job_id), KnownReferences()
    # As a driver does that has published them: what goes is then known, and not listed.
    for each in objects.list_epochs():
        references = read_references(objects, each)
        if not isinstance(references, Damaged):
            known.learn(each, references)
    compact_job(backend, job_id, EAGER)
    claim = claim_generation(objects, backend.ambient)
    retain_known_epochs(objects, claim, RetentionPolicy(1), backend.ambient, None, known)
    _check_fork(world, backend, job_id, seen)
    again = f"{job_id}-again"
    fork(backend, job_id, again)
    retain_epochs(objects, claim, RetentionPolicy(1), backend.ambient)
    _check_fork(world, backend, again, seen)
    world.counts["forks of forks"] += 1


def _check_fork(world: World, backend: SimulatedBackend, job_id: str, seen: Seen | None) -> None:
    """Check that a fork has exactly the state of its epoch."""
    newest = backend.objects(job_id).list_epochs()[-1]
    found = read_state(world.job, backend, newest, 2, job_id)
    for table, want in ({} if seen is None else world.job.state(seen) or {}).items():
        difference = row_difference(world.job, found[table], want)
        if difference:
            world.fail(Promise.FORK_EXACT, f"{table} of {job_id}: {difference}")


def run_change_reader(world: World, number: int) -> None:
    """Read epoch after epoch, each kept by a tag from before it is read until the next one is."""
    random = random_stream(world.seed, f"change reader {number}")
    process = Process(world, f"c{number}", "somewhere")
    backend = SimulatedBackend(process, process.client(world.state))
    job, kept = backend.objects(JOB_ID), None
    for _ in range(READS):
        world.scheduler.sleep(int(random.random() * 2_000))
        try:
            epochs = job.list_epochs()
            if not epochs or epochs[-1] == kept:
                continue
            name = f"reader-{number}-{epochs[-1]}"
            create_tag(job, name, epochs[-1], process)
            world.monitor.on_tag_acknowledged(name, epochs[-1])
            for epoch in filter(None, (kept, epochs[-1])):
                read_state(world.job, backend, epoch, 1)
            world.counts["changes read"] += kept is not None
            if kept is not None:
                world.monitor.on_tag_released(f"reader-{number}-{kept}")
                delete_tag(job, f"reader-{number}-{kept}")
            kept = epochs[-1]
        except NotFoundError as late:
            world.note(f"{process.name}: {late}")
            if kept is not None and kept not in world.monitor.retained_epochs():
                world.fail(Promise.TAG_KEEPS_EPOCH, f"epoch {kept} of a reader: {late}")
        except Exception as error:  # noqa: BLE001 - judged
            world.check_error(process, error, is_zombie=True)
            return
