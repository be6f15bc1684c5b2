"""A step of a stage: an operator or a sink, as a subtask runs it.

A subtask knows only the two protocols here, so that sinks, which are in another layer, can be steps
like operators. `OperatorStep` is the step of an operator.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import ModuleType
from typing import Protocol

import pyarrow as pa

from lakestate.ambient import Ambient
from lakestate.coordinator.epoch_plan import EpochTimes
from lakestate.errors import InvalidInputError, LakestateError, OperatorError
from lakestate.observability.file_events import FileEvent
from lakestate.operators.context import OperatorContext
from lakestate.operators.operator import Batches, Operator, batches_of, state_tables
from lakestate.operators.timers.running import RunningTimers
from lakestate.operators.timers.table import timers_of
from lakestate.protocol.values import Epoch, TaskInfo
from lakestate.runtime.conform import conform_input, conform_output
from lakestate.tables.arrow.schema import arrow_fields, columns_of
from lakestate.tables.contract import Table
from lakestate.tables.manager import TableManager


@dataclass(frozen=True, slots=True)
class StepScope:
    """One subtask of a step in one epoch, with its restored state."""

    task: TaskInfo
    epoch: Epoch
    times: EpochTimes
    tables: TableManager
    ambient: Ambient

    @property
    def where(self) -> str:
        """The operator, subtask and epoch, for error messages."""
        task = self.task
        return (
            f"operator {task.operator_id}, subtask {task.subtask_index} of {task.parallelism}, "
            f"epoch {self.epoch}"
        )


class RunningStep(Protocol):
    """A step at work in one subtask in one epoch. The first five calls may yield rows."""

    def start(self) -> Iterator[pa.RecordBatch]:
        """Called before the first row."""
        ...

    def process(self, input_name: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Process rows of an input."""
        ...

    def end_rows(self) -> Iterator[pa.RecordBatch]:
        """Called after the last row."""
        ...

    def watermark(self) -> Iterator[pa.RecordBatch]:
        """Called after that, if there is a watermark."""
        ...

    def close(self) -> Iterator[pa.RecordBatch]:
        """Called after the watermark, if the stream has ended."""
        ...

    def end_epoch(self) -> Iterator[pa.RecordBatch]:
        """Called after everything else."""
        ...

    def finish(self, *, finish_files: bool) -> None:
        """Called before the checkpoint: everything that must survive goes into the tables.

        With `finish_files`, output files are finished.
        """
        ...

    def abandon(self) -> None:
        """Called after a failure: release local resources."""
        ...

    @property
    def file_events(self) -> Sequence[FileEvent]:
        """What happened to output files, in order. Read after `finish`."""
        ...

    @property
    def due_us(self) -> int | None:
        """The earliest processing time at which the step wants to be called, or None. Read after `finish`."""
        ...


class Step(Protocol):
    """A step as it is shipped to subtasks."""

    @property
    def step_id(self) -> str:
        """The operator's or sink's id."""
        ...

    def tables(self) -> Sequence[Table]:
        """The state tables of the step."""
        ...

    def open(self, scope: StepScope) -> RunningStep:
        """Start the step in one subtask for one epoch."""
        ...


@dataclass(frozen=True, slots=True)
class ChainLink:
    """A step and where its rows come from: the step at `parent`, or the stage's input."""

    step: Step
    parent: int | None = None
    exported: bool = False
    """True if its output leaves the stage."""


@dataclass(frozen=True, slots=True)
class OperatorStep:
    """An operator as a step."""

    step_id: str
    operator: Operator

    def tables(self) -> Sequence[Table]:
        """The operator's tables."""
        return state_tables(self.operator)

    def open(self, scope: StepScope) -> RunningOperator:
        """Copy the operator, with views in place of its tables."""
        return RunningOperator(self.operator, scope)


class RunningOperator:
    """An operator at work. Errors of its code name the subtask and epoch, and keep their cause."""

    def __init__(self, operator: Operator, scope: StepScope) -> None:
        declared = operator.tables()
        self._scope = scope
        self._context = OperatorContext(scope.task, scope.epoch, scope.times, scope.tables, declared)
        self._declaration = operator
        self._operator = fresh_copy(operator, {name: self._context.view(name) for name in declared})
        self._timers = RunningTimers(timers_of(declared), self._context)

    def start(self) -> Iterator[pa.RecordBatch]:
        """Call `on_start`."""
        return self._run_hook("on_start", lambda: self._operator.on_start(self._context))

    def process(self, input_name: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Call the method that takes rows of this input."""
        needed = self._needed.get(input_name)
        if needed is not None:
            batch = conform_input(batch, needed, f"input of {self._scope.where}")
        return self._run_hook("process", lambda: self._operator.process(input_name, batch, self._context))

    def end_rows(self) -> Iterator[pa.RecordBatch]:
        """Call `on_rows_end`."""
        return self._run_hook("on_rows_end", lambda: self._operator.on_rows_end(self._context))

    def watermark(self) -> Iterator[pa.RecordBatch]:
        """Call `on_watermark`."""
        watermark = self._context.watermark
        assert watermark is not None
        return self._run_hook("on_watermark", lambda: self._operator.on_watermark(watermark, self._context))

    def close(self) -> Iterator[pa.RecordBatch]:
        """Call `on_timer` for all timers in event time, and then `on_close`."""
        yield from self._fire_timers()
        yield from self._run_hook("on_close", lambda: self._operator.on_close(self._context))

    def end_epoch(self) -> Iterator[pa.RecordBatch]:
        """Call `on_timer` for timers that are due, and then `on_epoch_end`."""
        yield from self._fire_timers()
        yield from self._run_hook("on_epoch_end", lambda: self._operator.on_epoch_end(self._context))
        self._timers.wake()

    def _fire_timers(self) -> Iterator[pa.RecordBatch]:
        for rows in self._timers.due(self._scope.where):
            yield from self._run_hook("on_timer", partial(self._operator.on_timer, rows, self._context))

    def finish(self, *, finish_files: bool) -> None:
        """Do nothing: an operator's state is already in its tables."""

    def abandon(self) -> None:
        """Do nothing: an operator holds nothing that must be released."""

    @property
    def file_events(self) -> Sequence[FileEvent]:
        """None: an operator writes no files."""
        return ()

    @property
    def due_us(self) -> int | None:
        """The earliest time for which the operator called `ctx.wake_at`."""
        return self._context.due_us

    @cached_property
    def _needed(self) -> dict[str, pa.Schema]:
        operator = self._declaration
        declared = {name: operator.needed_columns(name) for name in operator.input_names}
        return {
            name: pa.schema(arrow_fields(columns_of(columns, what="input")))
            for name, columns in declared.items()
            if columns is not None
        }

    @cached_property
    def _output(self) -> pa.Schema | None:
        return self._declaration.output_schema

    def _run_hook(self, hook: str, call: Callable[[], Batches]) -> Iterator[pa.RecordBatch]:
        rows = batches_of_hook(hook, call, self._scope)
        return (conform_output(batch, self._output, self._scope.where) for batch in rows)


def fresh_copy(operator: Operator, views: Mapping[str, object]) -> Operator:
    """The operator as it was declared, whatever earlier epochs and attempts did to its attributes.

    A Python worker keeps what was shipped to it: a shared list would carry rows of one subtask, or of
    a discarded attempt, into another.
    """
    attributes = {name: value for name, value in vars(operator).items() if name not in views}
    fresh = copy.copy(operator)
    # A module cannot be copied, and need not be.
    memo: dict[int, object] = {
        id(value): value for value in attributes.values() if isinstance(value, ModuleType)
    }
    # A bound method among the attributes, or any other reference back, leads to the new operator.
    memo[id(operator)] = fresh
    for name, value in attributes.items():
        try:
            vars(fresh)[name] = copy.deepcopy(value, memo)
        except Exception as cause:
            raise InvalidInputError(
                "an attribute of an operator cannot be copied, and every epoch needs a copy",
                object_name=f"{type(operator).__name__}.{name}",
                found=f"{type(value).__name__}: {cause}",
                action="create it in on_start, keep it in a module, or give its class __deepcopy__",
            ) from cause
    vars(fresh).update(views)
    return fresh


def batches_of_hook(hook: str, call: Callable[[], Batches], scope: StepScope) -> Iterator[pa.RecordBatch]:
    """What user code yields. What it raises is wrapped, with the original error as its cause."""
    try:
        yield from batches_of(call())
    except InvalidInputError as cause:
        raise _operator_error(hook, scope, cause) from cause
    except LakestateError:
        # Storage, corruption, fencing: not the operator's fault, and handled by their own type.
        raise
    except Exception as cause:
        raise _operator_error(hook, scope, cause) from cause


def _operator_error(hook: str, scope: StepScope, cause: Exception) -> OperatorError:
    return OperatorError(
        f"{hook} raised {type(cause).__name__}", object_name=scope.where, found=str(cause) or repr(cause)
    )
