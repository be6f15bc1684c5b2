"""Runs one subtask of a stage inside a Spark task, over the Arrow batches of its partition.

Spark's partition id is the subtask index. The output has one nullable struct column for each exported
step. Its last row holds the report and nothing else.
"""

from __future__ import annotations

import gc
import platform
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import pyarrow as pa
from pyspark import cloudpickle

from lakestate.coordinator.epoch_plan import EpochPlan
from lakestate.errors import InvalidInputError
from lakestate.job.state_backend import StateBackend
from lakestate.runtime.subtask import StagePlan, SubtaskRun
from lakestate.spark.tasks.prompt_input import acknowledge_input
from lakestate.spark.tasks.task_errors import loading_error, record_errors

REPORT = "__report"
STAGES_KEPT = 16


@dataclass(frozen=True)
class StageCode:
    """The part of a stage that is the same in all epochs, as bytes: user code is pickled once."""

    data: bytes
    digest: str

    @classmethod
    def of(cls, stage: StagePlan, backend: StateBackend) -> StageCode:
        """Pickle a stage. The bytes travel to executors inside one running job and are never stored."""
        try:
            data = cloudpickle.dumps((stage, backend))  # type: ignore[no-untyped-call]
        except Exception as cause:
            # Objects choose what they raise when they are pickled.
            steps = ", ".join(link.step.step_id for link in stage.links)
            raise InvalidInputError(
                "operators or sinks cannot be sent to workers, because they cannot be pickled",
                object_name=steps,
                found=f"{type(cause).__name__}: {cause}",
                action="create what cannot be pickled, such as a connection, in on_start",
            ) from cause
        return cls(data, blake2b(data, digest_size=16).hexdigest())

    def load(self) -> tuple[StagePlan, StateBackend]:
        """Unpickle the stage. This process keeps it, with its connections, for later epochs."""
        if self.digest not in _STAGES:
            _STAGES[self.digest] = self._unpickle()
            # Spark collects garbage after every task. Visiting modules and classes alone took 50 ms,
            # and they live as long as the process.
            gc.collect()
            gc.freeze()
            while len(_STAGES) > STAGES_KEPT:
                _STAGES.popitem(last=False)
        return _STAGES[self.digest]

    def _unpickle(self) -> tuple[StagePlan, StateBackend]:
        try:
            stage, backend = cloudpickle.loads(self.data)
        except (ImportError, AttributeError) as cause:
            found = f"{type(cause).__name__}: {cause}"
            module = cause.name if isinstance(cause, ImportError) else None
            raise loading_error(found, platform.node(), module) from cause
        return stage, backend


_STAGES: OrderedDict[str, tuple[StagePlan, StateBackend]] = OrderedDict()


@dataclass(frozen=True)
class Export:
    """A step whose rows leave the stage: its position, and the column that holds them."""

    link: int
    column: str
    schema: pa.Schema


@dataclass(frozen=True)
class StageTask:
    """The function that `mapInArrow` calls in every task of a stage."""

    code: StageCode
    plan: EpochPlan
    input_names: tuple[str, ...]
    """("",) for plain rows, or the names of the struct columns of several inputs."""
    exports: tuple[Export, ...] = ()
    columns: tuple[str, ...] | None = None
    """The names of the columns of plain rows, if the batches have others."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the subtask of this partition."""
        with record_errors():
            acknowledge_input()
            stage, backend = self.code.load()
            subtask = SubtaskRun(stage, _partition_id(stage), self.plan, backend)
            exports = {export.link: export for export in self.exports}
            for link, batch in subtask.run(self._inputs(batches)):
                yield self._row_batch(exports[link], batch)
            yield self._report_batch(subtask.report.encode())

    def _inputs(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self.input_names == ("",):
            for batch in batches:
                yield "", batch if self.columns is None else batch.rename_columns(list(self.columns))
            return
        for batch in batches:
            for name in self.input_names:
                rows = batch.column(name).drop_null()
                if len(rows):
                    yield name, pa.RecordBatch.from_struct_array(rows)

    def _row_batch(self, export: Export, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {export.column: batch.to_struct_array()}
        return self._batch(columns, batch.num_rows)

    def _report_batch(self, report: bytes) -> pa.RecordBatch:
        return self._batch({REPORT: pa.array([report], pa.binary())}, 1)

    def _batch(self, columns: dict[str, pa.Array], count: int) -> pa.RecordBatch:
        fields = output_fields(self.exports)
        arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in fields]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def output_fields(exports: Sequence[Export]) -> list[pa.Field]:
    """The columns of a stage's output."""
    rows = [pa.field(export.column, pa.struct(list(export.schema))) for export in exports]
    return [*rows, pa.field(REPORT, pa.binary())]


def _partition_id(stage: StagePlan) -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "a subtask runs inside a Spark task"
    index = context.partitionId()
    if index >= stage.parallelism:
        raise InvalidInputError(
            f"stage {stage.name} has more partitions than subtasks",
            found=f"partition {index}",
            expected=f"fewer than {stage.parallelism}",
        )
    return int(index)
