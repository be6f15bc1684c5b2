"""The actors besides the subtasks: drivers, the supervisor that starts them, taggers and readers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

from lakestate.coordinator.commit import Committer, OperatorCommit, OperatorCommitter
from lakestate.coordinator.compact import compact_stored
from lakestate.coordinator.engine.batches import engine_files_without_batch
from lakestate.coordinator.engine.due_epochs import DueEpochs, FollowedTime
from lakestate.coordinator.epoch_plan import Ending
from lakestate.coordinator.epoch_progress import AlreadyPublished, EpochFinished
from lakestate.coordinator.job_driver import DriverSettings, JobDriver
from lakestate.coordinator.retention.tags import create_tag, delete_tag
from lakestate.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    IncompatibleStateError,
    NotFoundError,
)
from lakestate.operators.operator import has_on_commit, state_tables
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.metadata import CompletionStatus, Manifest, SubtaskMetadata
from lakestate.protocol.retention import RetentionPolicy
from lakestate.protocol.values import Epoch, Generation
from lakestate.repair.going_back import go_back
from lakestate.runtime.operator_commit import operator_committer
from lakestate.runtime.sink_step import output_claim, sink_clean_up, sink_committer, sink_take_over
from lakestate.tables.contract import CompactedFiles, Table
from lakestate.testing.faults import Operation
from lakestate.testing.simulation.checks.monitor import AWAITABLE_WRITES
from lakestate.testing.simulation.checks.read_back import read_state, row_difference
from lakestate.testing.simulation.cluster.engine import SOURCE, Cluster, all_sinks
from lakestate.testing.simulation.cluster.process import HOUR_MS, ActorExecutor, Process, SimulatedBackend
from lakestate.testing.simulation.cluster.query import SimulatedQuery
from lakestate.testing.simulation.cluster.scheduler import Actor
from lakestate.testing.simulation.cluster.world import JOB_ID, TABLE, World
from lakestate.testing.simulation.promises import Promise
from lakestate.testing.simulation.random_streams import random_stream
from lakestate.testing.simulation.stores.objects import SimulatedObjects

TAGS_EACH = 3
IMPATIENCE_MS = 2_000
"""A store call takes about ten: a second driver starts in the middle of the first one's work."""
REFUSED = "refused for a lost part"
PAUSE_RATE = 0.3
BACK_RATE = 0.7
SILENCE_RATE = 0.5
LAST_STARTS_MAX = 8
"""Without faults, the job must finish within this many starts."""


class Driver:
    """One start of the job's driver, in a process of its own."""

    def __init__(self, world: World, number: int) -> None:
        scenario = world.scenario
        self._world = world
        self._process = Process(world, f"d{number}", f"driver-{number}")
        parallelism = scenario.parallelism[min(number, len(scenario.parallelism)) - 1]
        version = 2 if scenario.upgrade_at is not None and number > scenario.upgrade_at else 1
        self._version = version
        # A stream of its own, so that pauses do not change what other actors draw.
        self._pauses = random_stream(world.seed, f"pauses {number}")
        world.newest_version = max(version, world.newest_version)
        if version == 2 and world.monitor.published:
            world.counts["upgraded"] += 1
        self._cluster = Cluster(world, self._process, parallelism, version)
        self._backend = SimulatedBackend(self._process, self._process.client(world.state))
        self._backs = random_stream(world.seed, f"backs {number}")
        sinks = self._sinks = all_sinks(world, self._process)
        self._tables: dict[str, Sequence[Table]] = {
            world.job.operator_id: state_tables(world.job.operator("driver", version)),
            **{sink_id: sink.tables() for sink_id, sink in sinks.items()},
        }
        self._driver = JobDriver(
            self._backend,
            JOB_ID,
            self._cluster.steps,
            {**self._own_committer(), **{sink_id: sink_committer(sink) for sink_id, sink in sinks.items()}},
            timed_sources=(SOURCE,) if world.job.event_time else (),
            settings=DriverSettings(RetentionPolicy(scenario.keep_epochs), scenario.compaction, 4 * HOUR_MS),
            compactor=self._compact,
            clean_up=sink_clean_up(sinks, JOB_ID),
            claim_output=output_claim(sinks, self._backend, JOB_ID),
            take_over=sink_take_over(sinks),
            upkeep_executor=ActorExecutor(self._process),
        )
        self._query = SimulatedQuery()
        self._silences = random_stream(world.seed, f"silences {number}")
        self._due = DueEpochs(self._driver, FollowedTime(event_time=True))

    def run(self) -> None:
        """Claim, recover, run epochs until the end of the source, and stop."""
        try:
            self._start()
            self._query.launch(self._driver.parent)
            while not _is_drained(self._world, self._driver.parent):
                self._run_epoch()
                if self._should_pause() and self._pause():
                    break
            self._driver.stop()
        except FencedError as fenced:
            self._world.note(f"{self._process.name} is fenced: {fenced}", is_turning_point=True)
            self._world.counts["drivers fenced"] += 1
            if not self._world.monitor.is_overtaken(self._process):
                self._world.fail(Promise.ONLY_OVERTAKEN_FENCED, fenced)
            raise
        except Exception as error:
            self._world.check_error(self._process, error, is_older=self._version < self._world.newest_version)
            raise

    def _start(self) -> None:
        """Start. A job whose stream has ended is refused, but its last commit is completed first."""
        if self._should_go_back():
            self._go_back()
        try:
            self._driver.start()
        except IncompatibleStateError:
            if not _is_drained(self._world, self._driver.parent):
                raise

    def _run_epoch(self) -> None:
        """Run the epoch of a batch, or one without rows while the source is silent."""
        world, query = self._world, self._query
        if self._is_silent():
            world.counts["epochs without rows"] += self._run_without_batch(Ending.CONTINUE)
            return
        first, count = query.position, len(world.job.rows)
        if first == count:
            self._run_without_batch(Ending.END_OF_STREAM)
            return
        wanted = world.work.randint(0 if world.faults.is_on else 1, world.scenario.rows_per_epoch)
        stop = min(count, first + wanted)
        is_last = stop == count and not world.scenario.ends_later
        outcome = self._driver.run_epoch(
            query.epoch,
            lambda plan: self._cluster.run(plan, first, stop, query.files(plan.epoch, stop)),
            Ending.END_OF_STREAM if is_last else Ending.CONTINUE,
        )
        if isinstance(outcome, AlreadyPublished):
            world.fail(Promise.BATCHES_BECOME_EPOCHS, f"batch {query.batch_id} as epoch {query.epoch}")
        if isinstance(outcome, EpochFinished):
            query.finish_batch(stop)
        else:
            query.launch(self._driver.parent)

    def _is_silent(self) -> bool:
        if not self._world.scenario.silences or self._silences.random() >= SILENCE_RATE:
            return False
        # As for initial state, an epoch may come before the first batch.
        return self._driver.parent is None or self._due.is_due()

    def _run_without_batch(self, ending: Ending) -> bool:
        """Run an epoch without rows. False if another driver published one first."""
        parent = self._driver.parent
        reached = _offset(parent)
        outcome = self._driver.run_epoch(
            self._driver.next_epoch(),
            lambda plan: self._cluster.run(
                plan, reached, reached, engine_files_without_batch(parent, plan.epoch)
            ),
            ending,
        )
        if not isinstance(outcome, EpochFinished):
            self._query.launch(self._driver.parent)
            return False
        self._query.skip_epoch()
        return True

    def _should_go_back(self) -> bool:
        world = self._world
        # What a target of `on_commit`, or of a delivery, does with rows that come again is up to the target.
        has_target = world.scenario.commits or world.scenario.delivers or world.scenario.table_rows == "key"
        is_possible = world.scenario.goes_back and not has_target and world.faults.is_on
        return is_possible and self._backs.random() < BACK_RATE

    def _go_back(self) -> None:
        """Go back to any epoch that can still be opened, and accept what is visible."""
        epochs = self._backend.objects(JOB_ID).list_epochs()
        if not epochs:
            return
        try:
            gone = go_back(
                self._backend,
                JOB_ID,
                self._backs.choice(epochs),
                sinks=self._sinks,
                accept_visible_output=True,
            )
            self._world.note(f"{self._process.name} is back at {gone.to}", is_turning_point=True)
        except (NotFoundError, IncompatibleStateError) as refused:
            self._world.note(f"{self._process.name} cannot go back: {refused}")

    def _should_pause(self) -> bool:
        world, newest = self._world, self._driver.parent
        return (
            world.scenario.is_paused
            and self._pauses.random() < PAUSE_RATE
            and world.faults.is_on
            and not _is_drained(world, newest)
        )

    def _pause(self) -> bool:
        """Finish all files. False if another driver published an epoch first."""
        if not self._run_without_batch(Ending.FINISH_FILES):
            return False
        self._world.counts["pauses"] += 1
        assert self._driver.parent is not None
        self._world.monitor.check_paused(self._driver.parent.epoch)
        self._world.table_checks.check_paused(self._driver.parent.epoch)
        return True

    def _own_committer(self) -> dict[str, Committer | OperatorCommitter]:
        """The operator's `on_commit`, one call of which is one transaction of a remote target."""
        world, process = self._world, self._process
        operator = world.job.operator("driver", self._version)
        if not has_on_commit(operator, world.job.operator_id):
            return {}
        on_commit = operator_committer(operator).on_commit

        def transact(commit: OperatorCommit) -> None:
            world.monitor.check_fence("commit", f"epoch {commit.epoch}")
            world.monitor.commits.on_call(process, commit)
            on_commit(commit)
            world.monitor.commits.on_return(commit.epoch)

        def call(commit: OperatorCommit) -> None:
            process.call(world.target, Operation.PUT, f"epoch-{commit.epoch}", partial(transact, commit))

        return {world.job.operator_id: OperatorCommitter(call)}

    def _compact(
        self, manifest: Manifest, stored: Sequence[SubtaskMetadata], generation: Generation
    ) -> dict[int, tuple[CompactedFiles, ...]]:
        policy = self._world.scenario.compaction or CompactionPolicy()
        tables = self._tables[stored[0].operator_id]
        done = compact_stored(self._backend, manifest, stored, generation, policy, tables)
        self._world.counts["merges"] += sum(map(len, done.merges.values()))
        self._world.counts["merges of replicated tables"] += len(done.replicated)
        return {each.subtask_index: done.of_subtask(each.subtask_index) for each in stored}


def run_supervisor(world: World) -> None:
    """Start drivers, sometimes several at once, and then drivers without faults until the job is done."""
    scenario = world.scenario
    started: list[Actor] = []
    for number in range(1, scenario.drivers + 1):
        driver = world.scheduler.spawn(f"driver {number}", Driver(world, number).run)
        started.append(driver)
        if world.faults.should_happen(scenario.rates.second_driver):
            _wait_impatiently(world, driver)
        else:
            patience_ms = scenario.patience_min * 60_000
            world.scheduler.wait(lambda: driver.done, patience_ms)  # noqa: B023 - used at once
        if not driver.done:
            world.counts["two drivers"] += 1
    world.faults.is_on = False
    world.note("no more faults from here on", is_turning_point=True)
    for number in range(scenario.drivers + 1, scenario.drivers + LAST_STARTS_MAX):
        driver = world.scheduler.spawn(f"driver {number}", Driver(world, number).run)
        world.scheduler.wait(lambda: driver.done, 20 * HOUR_MS)  # noqa: B023 - used at once
        if driver.error is not None:
            world.note(f"driver {number}: {driver.error}")
        if scenario.goes_back:
            # One that was stalled may still go back, and then there is more to do.
            world.scheduler.wait(lambda: all(each.done for each in started), 20 * HOUR_MS)
        if world.monitor.is_drained and driver.error is None:
            return
        if scenario.loses_part and isinstance(driver.error, NotFoundError | CorruptionError | ValueError):
            world.counts[REFUSED] += 1
            return
    world.fail(Promise.JOB_FINISHES, driver.error)


def _wait_impatiently(world: World, driver: Actor) -> None:
    """Wait for a random time, or until an important write has just happened."""
    if world.work.random() < 0.5:
        world.scheduler.wait(lambda: driver.done, int(world.work.random() * IMPATIENCE_MS))
        return
    monitor = world.monitor
    writes = AWAITABLE_WRITES if world.table is None else (*AWAITABLE_WRITES, TABLE, TABLE)
    monitor.await_write(world.work.choice(writes), world.work.randint(1, 4))
    world.scheduler.wait(lambda: driver.done or monitor.has_awaited_write, 2 * HOUR_MS)


def run_tagger(world: World, number: int) -> None:
    """Tag epochs at random times, mostly the oldest, and delete some of the tags later."""
    # A stream of its own, so that leaving taggers out does not change what other actors draw.
    random = random_stream(world.seed, f"tagger {number}")
    for again in range(TAGS_EACH):
        world.scheduler.sleep(int(random.random() * 3_000))
        _tag(world, Process(world, f"t{number}x{again}", "somewhere"), random)


def _tag(world: World, process: Process, random: Random) -> None:
    job = SimulatedObjects(process.client(world.state), JOB_ID)
    name = f"tag-{process.name}"
    try:
        epochs = job.list_epochs()
        if not epochs:
            return
        tag = create_tag(job, name, random.choice([epochs[0], epochs[0], *epochs]), process)
        world.monitor.on_tag_acknowledged(name, tag.epoch)
        world.counts["tags"] += 1
        if random.random() < 0.5:
            world.scheduler.sleep(int(random.random() * random.choice([2_000, 2 * HOUR_MS])))
            world.monitor.on_tag_released(name)
            delete_tag(job, name)
    except (NotFoundError, ConflictError):
        world.note(f"{process.name} is too late for its tag")
    except Exception as error:  # noqa: BLE001 - judged
        world.check_error(process, error, is_zombie=True)


def run_reader(world: World, number: int) -> None:
    """Open an epoch while retention may run. The reader must get the exact state or a clear error."""
    random = random_stream(world.seed, f"reader {number}")
    world.scheduler.sleep(int(random.random() * 4_000))
    process = Process(world, f"r{number}", "somewhere")
    client = process.client(world.state)
    job, monitor = SimulatedObjects(client, JOB_ID), world.monitor
    epoch: Epoch | None = None
    try:
        epochs = job.list_epochs()
        if not epochs:
            return
        epoch = random.choice(epochs)
        promised = monitor.published.get(epoch)
        found = read_state(world.job, SimulatedBackend(process, client), epoch, random.randint(1, 3))
        if promised is not None:
            for table, want in (world.job.state(promised.seen) or {}).items():
                difference = row_difference(world.job, found[table], want)
                if difference:
                    world.fail(Promise.READER_SEES_EPOCH, f"{table} of {epoch}: {difference}")
            world.counts["reads"] += 1
    except (NotFoundError, CorruptionError) as gone:
        world.note(f"{process.name}: {gone}")
        # An epoch that is retained now was retained during the whole read.
        if epoch in monitor.retained_epochs():
            world.fail(Promise.RETAINED_READABLE, gone)
    except Exception as error:  # noqa: BLE001 - judged
        world.check_error(process, error, is_zombie=True)


def _is_drained(world: World, parent: Manifest | None) -> bool:
    return (
        parent is not None
        and parent.status is CompletionStatus.FINAL
        and _offset(parent) == len(world.job.rows)
    )


def _offset(parent: Manifest | None) -> int:
    return 0 if parent is None else int(parent.sources[0].offsets)
