"""The simulated engine: runs the subtasks of an epoch as attempts on hosts, as Spark does.

Attempts fail and are repeated, are given up and come back, and run twice. Completed ones run again
because their host was lost. The driver decides whether the epoch is still valid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from lakestate.coordinator.engine.batches import EngineFiles
from lakestate.coordinator.epoch_plan import EpochPlan, EpochResult, SubtaskReport
from lakestate.errors import LakestateError, StorageUnavailableError
from lakestate.protocol.metadata import SourceOffsets
from lakestate.runtime.sink_step import SinkStep
from lakestate.runtime.steps import ChainLink, OperatorStep
from lakestate.runtime.subtask import StagePlan, SubtaskRun
from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.formats.json_lines.sink import JsonLinesSink
from lakestate.sinks.formats.parquet.sink import ParquetSink
from lakestate.sinks.rolling import Roll
from lakestate.sinks.sink import Sink
from lakestate.storage.store import ObjectStore
from lakestate.tables.arrow.schema import arrow_fields
from lakestate.tables.hashing.routing import routing_keys, subtasks_of
from lakestate.testing.faults import SimulatedCrash
from lakestate.testing.simulation.cluster.delivery import DeliverySink
from lakestate.testing.simulation.cluster.process import Process, SimulatedBackend
from lakestate.testing.simulation.cluster.scheduler import Actor
from lakestate.testing.simulation.cluster.world import DELIVERED, HOSTS, TABLE, World
from lakestate.testing.simulation.scenario import Scenario
from lakestate.testing.simulation.stores.store import SimulatedStore

SOURCE = "rows"
FAILURES_MAX = 4
TASK_TIMEOUT_MS = 300_000


@dataclass
class Attempt:
    """One run of one subtask, in a process of its own."""

    subtask: int
    actor: Actor
    process: Process


@dataclass
class _Stage:
    """A running stage: what each subtask reads, and its result."""

    name: str
    parallelism: int
    inputs: Sequence[Sequence[tuple[str, pa.Table]]]
    """For each subtask: its rows, with the names of the inputs that take them."""
    outputs: dict[int, pa.Table] = field(default_factory=dict)
    reports: list[SubtaskReport] = field(default_factory=list)
    failures: int = 0


class Cluster:
    """Runs the epochs of one driver."""

    def __init__(self, world: World, driver: Process, parallelism: int, version: int) -> None:
        self._world = world
        self._driver = driver
        self._parallelism = parallelism
        self._version = version
        self._attempts: Counter[str] = Counter()
        self._schema = pa.schema(arrow_fields(world.job.output_columns()))

    @property
    def steps(self) -> dict[str, int]:
        """The parallelism of the operator and the sink."""
        steps = {self._world.job.operator_id: self._parallelism}
        if len(self._schema):
            count = self._world.scenario.sink_parallelism or self._parallelism
            steps |= dict.fromkeys(all_sinks(self._world, self._driver), count)
        return steps

    def run(self, plan: EpochPlan, first: int, stop: int, files: EngineFiles) -> EpochResult:
        """Run an epoch over the rows from `first` up to `stop`. The files are what the engine stores."""
        job = self._world.job
        rows = job.rows[first:stop]
        self._world.work.shuffle(rows)
        stage = _Stage("s", self._parallelism, self._route_inputs(job.inputs(rows)))
        self._run_stage(stage, plan, lambda process: self._first_stage(process))
        self._maybe_superseded(stage, plan)
        reports = list(stage.reports)
        if self._has_sink_stage:
            reports += self._sink_stage(stage, plan)
        reached = SourceOffsets(SOURCE, str(stop), job.source_watermark_us(stop))
        return EpochResult(tuple(reports), (reached,), files.files, files.logs, rows={SOURCE: len(rows)})

    @property
    def _has_sink_stage(self) -> bool:
        return bool(len(self._schema)) and self._world.scenario.sink_parallelism is not None

    def _sink_stage(self, before: _Stage, plan: EpochPlan) -> list[SubtaskReport]:
        count = self._world.scenario.sink_parallelism or self._parallelism
        table = pa.concat_tables([before.outputs[index] for index in range(before.parallelism)])
        stage = _Stage("o", count, [[("", part)] for part in self._route(table, count)])
        self._run_stage(stage, plan, lambda process: self._sink_links(process, parent=None))
        return stage.reports

    def _maybe_superseded(self, stage: _Stage, plan: EpochPlan) -> None:
        """Sometimes lose the host of a completed attempt with its output, and run the subtask again."""
        world = self._world
        if world.faults.should_happen(world.faults.rates.superseded):
            again = int(world.work.random() * stage.parallelism)
            world.note(f"subtask {again} had completed and is run again", is_turning_point=True)
            world.counts["superseded"] += 1
            old = stage.outputs.pop(again)
            self._run_stage(stage, plan, lambda process: self._first_stage(process))
            if world.work.random() < 0.5:
                # Other subtasks have already fetched the old output.
                stage.outputs[again] = old

    def _first_stage(self, process: Process) -> tuple[ChainLink, ...]:
        job = self._world.job
        operator = job.operator(process.name, self._version)
        link = ChainLink(OperatorStep(job.operator_id, operator), exported=self._has_sink_stage)
        chained = len(self._schema) and not self._has_sink_stage
        return (link, *self._sink_links(process, parent=0)) if chained else (link,)

    def _sink_links(self, process: Process, parent: int | None) -> tuple[ChainLink, ...]:
        sinks = all_sinks(self._world, process)
        steps = [SinkStep(sink_id, sink, self._schema) for sink_id, sink in sinks.items()]
        return tuple(ChainLink(step, parent=parent) for step in steps)

    def _run_stage(
        self, stage: _Stage, plan: EpochPlan, links: Callable[[Process], tuple[ChainLink, ...]]
    ) -> None:
        """Run attempts until every subtask has output."""
        missing = [index for index in range(stage.parallelism) if index not in stage.outputs]
        running = [self._start_attempt(stage, index, plan, links) for index in missing]
        while missing:
            scheduler = self._world.scheduler
            in_time = scheduler.wait(partial(_any_done, running), TASK_TIMEOUT_MS)
            if self._driver.crashed:
                raise SimulatedCrash("the driver has crashed")
            if not in_time:
                # No attempt has reported for minutes. They are given up, although they still run.
                running += [self._start_attempt(stage, index, plan, links) for index in missing]
                stage.failures += 1
            for attempt in sorted(running, key=lambda each: each.actor.finished_at):
                if attempt.actor.done:
                    running.remove(attempt)
                    if attempt.subtask in missing and not self._accept_result(stage, attempt):
                        running.append(self._start_attempt(stage, attempt.subtask, plan, links))
            missing = [index for index in missing if index not in stage.outputs]

    def _accept_result(self, stage: _Stage, attempt: Attempt) -> bool:
        """Take the result of a finished attempt. The first one counts. False: run the subtask again."""
        if attempt.subtask in stage.outputs:
            return True
        error = attempt.actor.error
        if error is None:
            output, report = attempt.actor.result
            stage.outputs[attempt.subtask] = output
            stage.reports.append(SubtaskReport.decode(report))
            return True
        stage.failures += 1
        if stage.failures < FAILURES_MAX and isinstance(error, StorageUnavailableError | SimulatedCrash):
            return False
        if isinstance(error, LakestateError):
            raise error
        raise StorageUnavailableError("too many attempts of the epoch failed", object_name=stage.name)

    def _start_attempt(
        self, stage: _Stage, index: int, plan: EpochPlan, links: Callable[[Process], tuple[ChainLink, ...]]
    ) -> Attempt:
        world = self._world
        host = HOSTS[int(world.work.random() * len(HOSTS))]
        # The number depends on nothing else, because scripts identify faults by the name of the actor.
        subtask = f"{self._driver.name}e{plan.epoch}{stage.name}{index}"
        self._attempts[subtask] += 1
        process = Process(world, f"{subtask}x{self._attempts[subtask]}", host)
        process.generation = self._driver.generation
        plan_sent = plan.for_subtasks()

        def body() -> tuple[pa.Table, bytes]:
            try:
                return self._attempt(process, stage, index, plan_sent, links(process))
            except Exception as error:
                world.check_error(process, error, is_zombie=True)
                raise

        return Attempt(index, world.scheduler.spawn(process.name, body), process)

    def _attempt(
        self, process: Process, stage: _Stage, index: int, plan: EpochPlan, links: tuple[ChainLink, ...]
    ) -> tuple[pa.Table, bytes]:
        world = self._world
        cache = world.cache_of(process.host)
        backend = SimulatedBackend(process, process.client(world.state), cache)
        run = SubtaskRun(StagePlan(stage.name, stage.parallelism, links), index, plan, backend)
        batches = [
            (name, batch)
            for name, table in stage.inputs[index]
            for batch in table.combine_chunks().to_batches()
        ]
        output = [batch for _, batch in run.run(batches)]
        return pa.Table.from_batches(output, schema=self._schema), run.report.encode()

    def _route_inputs(self, inputs: Mapping[str, pa.Table]) -> list[list[tuple[str, pa.Table]]]:
        count = self._parallelism
        parts = {name: self._route(table, count) for name, table in inputs.items()}
        return [[(name, parts[name][index]) for name in parts] for index in range(count)]

    def _route(self, table: pa.Table, count: int) -> list[pa.Table]:
        if count == 1 or not table.num_rows:
            return [table] + [table.slice(0, 0)] * (count - 1)
        key = [name for name in self._world.job.key if name in table.column_names] or table.column_names[:1]
        owners = subtasks_of(routing_keys([table[name] for name in key]), count)
        return [table.filter(pa.array(owners == index)) for index in range(count)]


def _any_done(attempts: list[Attempt]) -> bool:
    return any(each.actor.done for each in attempts)


def sinks_of(world: World, client: Callable[[SimulatedStore], ObjectStore]) -> dict[str, FileSink]:
    """The sinks, over the stores as one process reaches them."""
    return {sink_id: _sink(world.scenario, client(store)) for sink_id, store in world.outputs.items()}


def all_sinks(world: World, process: Process) -> dict[str, Sink]:
    """The sinks that write files, to a table, and the one that delivers, as a process reaches them."""
    sinks: dict[str, Sink] = dict(sinks_of(world, process.client))
    if world.table is not None:
        sinks[TABLE] = world.table.sink(process)
    if world.scenario.delivers:
        sinks[DELIVERED] = DeliverySink(process)
    return sinks


def _sink(scenario: Scenario, store: ObjectStore) -> FileSink:
    settings: dict[str, Any] = {
        "roll": Roll(bytes=scenario.roll_bytes, interval="2 minutes"),
        "part_bytes": scenario.part_bytes,
        "upload_threads": 0,
        "snapshot_open_files": scenario.snapshots,
    }
    sink: FileSink
    if scenario.is_parquet:
        sink = ParquetSink("memory://simulated", kept_row_bytes=500, compression="none", **settings)
    else:
        sink = JsonLinesSink("memory://simulated", **settings)
    # The only difference from production is the store that the sink opens.
    sink.__dict__["store"] = store
    return sink
