"""One subtask of one stage for one epoch: restore, process, react to the watermark, checkpoint.

A stage is a tree of steps whose rows need no routing between them. Spark's tasks, the operator harness
and the simulator all run it; it knows none of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakestate.coordinator.epoch_plan import Ending, EpochPlan, SubtaskReport
from lakestate.errors import InvalidInputError
from lakestate.job.state_backend import StateBackend
from lakestate.observability.progress import StepMetrics
from lakestate.observability.time_parts import (
    INPUT,
    MERGE,
    OPERATOR,
    OUTPUT,
    RESTORE,
    PartTimes,
    each_in,
    measured,
    timed,
)
from lakestate.protocol.values import TaskInfo
from lakestate.runtime.coalesce import coalesce_batches
from lakestate.runtime.initial_state import fill_tables
from lakestate.runtime.steps import ChainLink, RunningStep, Step, StepScope
from lakestate.tables.keyed.view import renew_rows
from lakestate.tables.manager import SubtaskCheckpoint, TableManager

Exported = tuple[int, pa.RecordBatch]
"""Rows that leave the stage, with the number of the link that they come from."""


@dataclass(frozen=True, slots=True)
class StagePlan:
    """A stage: its name, its parallelism, and its steps, parents before children."""

    name: str
    parallelism: int
    links: tuple[ChainLink, ...]
    dropped_tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Stored tables whose state the job gives up, by step."""


@dataclass(slots=True)
class _Progress:
    rows_in: list[int]
    rows_out: list[int]
    restore_ms: float = 0.0
    process_ms: float = 0.0
    checkpoints: list[SubtaskCheckpoint] = field(default_factory=list)
    checkpoint_ms: list[float] = field(default_factory=list)


class SubtaskRun:
    """One run of one subtask. `run` yields the rows that leave it; afterwards there is a `report`."""

    def __init__(self, stage: StagePlan, subtask_index: int, plan: EpochPlan, backend: StateBackend) -> None:
        self._stage = stage
        self._index = subtask_index
        self._plan = plan
        self._backend = backend
        self._children = _children(stage.links)
        self._managers: list[TableManager] = []
        self._steps: list[RunningStep] = []
        count = len(stage.links)
        self._progress = _Progress([0] * count, [0] * count)
        self._times = PartTimes(RESTORE)
        self._started_s = time.time()
        self._row_bytes = 0.0

    def run(self, batches: Iterable[tuple[str, pa.RecordBatch]]) -> Iterator[Exported]:
        """Process rows, each batch with the name of its input, and checkpoint at their end."""
        try:
            with measured(self._times):
                self._restore()
                started = time.perf_counter()
                for exported in self._process(each_in(INPUT, batches)):
                    with timed(OUTPUT):
                        yield exported
                self._progress.process_ms = _ms_since(started)
                with timed(MERGE):
                    self._checkpoint()
        except BaseException:
            for step in self._steps:
                step.abandon()
            raise

    @property
    def report(self) -> SubtaskReport:
        """What the subtask did, available once everything that `run` yields is consumed."""
        progress = self._progress
        if len(progress.checkpoints) != len(self._stage.links):
            raise InvalidInputError("the subtask has not finished", object_name=self._stage.name)
        metrics = {
            link.step.step_id: StepMetrics(
                rows_in=progress.rows_in[number],
                rows_out=progress.rows_out[number],
                bytes_written=progress.checkpoints[number].entry.summary.bytes_written,
                checkpoint_ms=progress.checkpoint_ms[number],
                files_written=progress.checkpoints[number].files_written,
            )
            for number, link in enumerate(self._stage.links)
        }
        return SubtaskReport(
            stage=self._stage.name,
            subtask_index=self._index,
            checkpoints=tuple(progress.checkpoints),
            metrics=metrics,
            restore_ms=progress.restore_ms,
            process_ms=progress.process_ms,
            checkpoint_ms=sum(progress.checkpoint_ms),
            file_events=tuple(event for step in self._steps for event in step.file_events),
            due_us=min((step.due_us for step in self._steps if step.due_us is not None), default=None),
            parts_ms=self._times.milliseconds(),
            started_s=self._started_s,
            ended_s=time.time(),
            row_bytes=self._row_bytes,
        )

    def _restore(self) -> None:
        started = time.perf_counter()
        for link in self._stage.links:
            manager = self._load_tables(link.step)
            scope = StepScope(
                manager.task, self._plan.epoch, self._plan.times, manager, self._backend.ambient
            )
            self._managers.append(manager)
            self._steps.append(link.step.open(scope))
        self._progress.restore_ms = _ms_since(started)

    def _load_tables(self, step: Step) -> TableManager:
        plan = self._plan
        task = TaskInfo(
            plan.job_id, step.step_id, self._index, self._stage.parallelism, plan.generation, plan.state_id
        )
        manager = TableManager.load(
            task,
            step.tables(),
            self._backend,
            plan.parent,
            # What is dropped, and whether a step may be new, was decided when the job started.
            drop=self._stage.dropped_tables.get(step.step_id, ()),
            allow_new_operator=True,
            processing_time_us=plan.processing_time_us,
            shipped=plan.stored.get(step.step_id),
        )
        manager.swap_in(plan.merges.get(step.step_id, {}).get(self._index, ()))
        if plan.expired_at_us is not None:
            for table in step.tables():
                renew_rows(manager.view(table.name), plan.expired_at_us)
        return manager

    def _process(self, batches: Iterable[tuple[str, pa.RecordBatch]]) -> Iterator[Exported]:
        if self._plan.ending is Ending.FILL:
            managers = {link.step.step_id: found for link, found in self._linked_managers()}
            fill_tables(batches, managers)
            return
        if self._plan.ending is Ending.FINISH_FILES:
            _refuse_rows(batches, self._stage.name)
            return
        # Children first, so that they are ready for what a parent yields at its start.
        for number in reversed(range(len(self._steps))):
            yield from self._emit(number, self._steps[number].start())
        for input_name, batch in coalesce_batches(self._weighed(batches)):
            for number in self._children[None]:
                yield from self._feed(number, input_name, batch)
        # Parents first, so that a child has seen all of a parent's rows before its own calls.
        for number, step in enumerate(self._steps):
            yield from self._emit(number, self._end_epoch(step))

    def _weighed(self, batches: Iterable[tuple[str, pa.RecordBatch]]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The batches as they are. Note how wide rows are."""
        for name, batch in batches:
            if batch.num_rows:
                self._row_bytes = max(self._row_bytes, batch.nbytes / batch.num_rows)
            yield name, batch

    def _linked_managers(self) -> Iterator[tuple[ChainLink, TableManager]]:
        return zip(self._stage.links, self._managers, strict=True)

    def _end_epoch(self, step: RunningStep) -> Iterator[pa.RecordBatch]:
        yield from step.end_rows()
        if self._plan.watermark_us is not None:
            yield from step.watermark()
        if self._plan.ending is Ending.END_OF_STREAM:
            yield from step.close()
        yield from step.end_epoch()

    def _feed(self, number: int, input_name: str, batch: pa.RecordBatch) -> Iterator[Exported]:
        self._progress.rows_in[number] += batch.num_rows
        yield from self._emit(number, self._steps[number].process(input_name, batch))

    def _emit(self, number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[Exported]:
        """Pass the rows of a step to its children and, if it is exported, out of the stage."""
        for batch in each_in(OPERATOR, batches):
            self._progress.rows_out[number] += batch.num_rows
            if self._stage.links[number].exported:
                yield number, batch
            for child in self._children.get(number, ()):
                yield from self._feed(child, "", batch)

    def _checkpoint(self) -> None:
        plan = self._plan
        for step, manager in zip(self._steps, self._managers, strict=True):
            started = time.perf_counter()
            step.finish(finish_files=plan.ending.finishes_files)
            is_last = plan.ending is Ending.END_OF_STREAM
            done = manager.checkpoint(plan.epoch, plan.min_epoch, plan.watermark_us, then_stop=is_last)
            self._progress.checkpoints.append(done)
            self._progress.checkpoint_ms.append(_ms_since(started))
            if (shipped := plan.stored.get(manager.task.operator_id)) is not None:
                # The epoch that no longer has them is published: nothing continues from an earlier one.
                manager.forget_files(shipped.gone_files(self._index))


def _refuse_rows(batches: Iterable[tuple[str, pa.RecordBatch]], stage: str) -> None:
    """Operators are not called in this epoch, so its rows would be lost."""
    count = sum(batch.num_rows for _, batch in batches)
    if count:
        raise InvalidInputError(
            "an epoch that only finishes files was given rows", object_name=stage, found=f"{count} rows"
        )


def _children(links: Sequence[ChainLink]) -> dict[int | None, list[int]]:
    children: dict[int | None, list[int]] = {None: []}
    for number, link in enumerate(links):
        if link.parent is not None and link.parent >= number:
            raise InvalidInputError("parents come before children", object_name=link.step.step_id)
        children.setdefault(link.parent, []).append(number)
    return children


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
