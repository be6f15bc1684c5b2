"""The DataFrames of one epoch: from Spark's batch to the routed input of every stage.

Uses only the DataFrame API. Expressions are texts: put together of `Column` objects, each takes dozens of
calls of the JVM, in every epoch. A frame that several stages need is persisted until the epoch ends.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, Observation
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from lakestate.coordinator.epoch_plan import EpochPlan
from lakestate.errors import InvalidInputError
from lakestate.protocol.watermarks import EVENT_TIME_MAX_US, EVENT_TIME_MIN_US
from lakestate.spark.execution.compile import CompiledPipeline, CompiledStage, source_column
from lakestate.spark.execution.epoch_constants import epoch_constant_sql
from lakestate.spark.execution.initial_state import route_initial_state
from lakestate.spark.graph.column_names import quote_name
from lakestate.spark.graph.nodes import (
    ApplyNode,
    ClosedRowsNode,
    CombineNode,
    ConnectNode,
    KeyByNode,
    Late,
    LateRowsNode,
    ShuffleNode,
    SourceNode,
    TransformNode,
    ancestors_of,
)
from lakestate.spark.graph.partition_shuffle import micros_sql
from lakestate.spark.graph.schemas import PLACE, add_key_columns, spark_ddl
from lakestate.spark.tasks.stage_task import REPORT, StageTask
from lakestate.spark.versions.placement import repartition_by_place, subtask_place_sql
from lakestate.spark.versions.read_partitions import read_partitions
from lakestate.tables.arrow.schema import columns_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class EpochFrames:
    """All frames of one run of an epoch. Call `release` when the run is over."""

    def __init__(
        self,
        pipeline: CompiledPipeline,
        plan: EpochPlan,
        batch: DataFrame | None,
        combined_first: Collection[str] = (),
    ) -> None:
        self._pipeline = pipeline
        self._plan = plan
        self._combined_first = combined_first
        """The stages whose rows are combined before they are routed."""
        self._frames: dict[int, DataFrame] = {}
        self._raw: dict[int, DataFrame] = {}
        self._kept: list[DataFrame] = []
        self._batch = batch
        self._observations: list[tuple[SourceNode, Observation]] = []
        if batch is not None and len(pipeline.graph.sources) > 1:
            self._batch = self._keep(batch)

    def release(self) -> None:
        """Unpersist all frames."""
        for frame in self._kept:
            frame.unpersist()

    def counts(self) -> dict[str, dict[str, Any]]:
        """What was observed of each source while its rows were read. Call it after all stages have run.

        Spark does not read a source whose rows contribute nothing. Its offsets advance all the same, and
        so must its watermark: its rows are then counted in a separate job.
        """
        return {
            node.name: _observed_counts(observation)
            or self._raw[id(node)].agg(*self._counts(node)).collect()[0].asDict()
            for node, observation in self._observations
        }

    def output(self, stage: CompiledStage) -> DataFrame:
        """The output of a stage's tasks. It is persisted if the stage exports rows."""
        if self._is_empty(stage.stage.origin):
            return self.output_of_no_rows(stage)
        return self._run_stage(stage, self._route(stage))

    def output_of_no_rows(self, stage: CompiledStage) -> DataFrame:
        """The output over no rows, for a stage whose input Spark has recognised as empty.

        Spark then runs no task at all, but every subtask must see the watermark and report.
        """
        names = stage.input_names
        schemas, origin = self._pipeline.schemas, stage.stage.origin
        sides = {"left": getattr(origin, "left", None), "right": getattr(origin, "right", None)}
        schema = schemas.of(origin)
        if names != ("",):
            schema = StructType([StructField(name, schemas.of(sides[name])) for name in names])
        return self._run_stage(
            stage, schemas.empty_frame_with_tasks(schema).repartition(self._pipeline.parallelism)
        )

    def output_of_initial_state(self, stage: CompiledStage) -> DataFrame | None:
        """The output over the initial rows of a stage's tables; None if it has none."""
        rows = route_initial_state(stage.stage, self._pipeline.parallelism)
        if rows is None:
            return None
        return self._run_stage(stage, rows, tuple(rows.columns))

    def _run_stage(
        self, stage: CompiledStage, routed: DataFrame, inputs: tuple[str, ...] | None = None
    ) -> DataFrame:
        columns = None
        if inputs is None:
            routed, columns = _with_plain_names(routed)
        plan = self._plan.for_subtasks({step.step_id for step in stage.stage.steps})
        task = StageTask(stage.code, plan, inputs or stage.input_names, stage.exports, columns)
        frame = routed.mapInArrow(task, stage.output)
        if not stage.exports:
            return frame
        frame = self._keep(frame)
        for node, export in zip(stage.stage.exported, stage.exports, strict=True):
            rows = frame.where(F.col(export.column).isNotNull()).select(f"{export.column}.*")
            self._frames[id(node)] = rows
        return frame

    def _rows_of(self, node: Any) -> DataFrame:
        """The rows of a node outside stages, or of a step that its stage exports."""
        if id(node) not in self._frames:
            frame = self._build(node)
            is_fork = id(node) in self._pipeline.forks and not isinstance(node, SourceNode)
            self._frames[id(node)] = self._keep(frame) if is_fork else frame
        return self._frames[id(node)]

    def _build(self, node: Any) -> DataFrame:
        match node:
            case SourceNode():
                on_time = self._source(node)
                return on_time.where(f"NOT {self._late_sql(node)}") if node.late is Late.DROP else on_time
            case LateRowsNode():
                return self._source(node.source).where(self._late_sql(node.source))
            case ClosedRowsNode():
                return self._rows_of(node.parent).where(self._closed_sql(node))
            case TransformNode():
                if self._is_empty(node):
                    return self._pipeline.schemas.empty_frame_with_tasks(self._pipeline.schemas.of(node))
                return self._apply_transform(node)
            case KeyByNode():
                return add_key_columns(self._rows_of(node.parent), node)[0]
            case ShuffleNode():
                return self._rows_of(node.parent)
        raise AssertionError(f"no earlier stage exported {node}")

    def _is_empty(self, node: Any) -> bool:
        """Whether there are no rows at a node, because the epoch has no batch and no operator comes before.

        Transforms are then not called: one that aggregates would make a row of none.
        """
        if self._batch is not None:
            return False
        return not any(isinstance(each, ApplyNode) for each in ancestors_of(node))

    def _apply_transform(self, node: TransformNode) -> DataFrame:
        """The rows that a transform returns. Their columns must be those of when the job started."""
        frame = node.function(self._rows_of(node.parent))
        expected = spark_ddl(self._pipeline.schemas.of(node))
        if spark_ddl(frame.schema) != expected:
            raise InvalidInputError(
                "a transform returns different columns than when the job started",
                object_name=getattr(node.function, "__name__", "transform"),
                found=spark_ddl(frame.schema),
                expected=expected,
                action="select and cast the columns in the transform, or restart the job with the new ones",
            )
        return frame

    def _source(self, node: SourceNode) -> DataFrame:
        """All rows of a source, with an observation if it has event time or is not the only source."""
        if id(node) in self._raw:
            return self._raw[id(node)]
        frame = self._read_source(node)
        # The first stage counts the rows of a single source without event time, which costs less.
        is_counted = node.event_time is not None or not self._pipeline.counts_rows_in_first_stage
        if is_counted and self._batch is not None:
            observation = Observation()
            self._observations.append((node, observation))
            frame = frame.observe(observation, *self._counts(node))
        self._raw[id(node)] = self._keep(frame) if id(node) in self._pipeline.forks else frame
        return self._raw[id(node)]

    def _counts(self, node: SourceNode) -> list[Column]:
        counts = ["count(1) AS rows"]
        if node.event_time is not None:
            time_us = event_time_sql(node)
            is_believed = f"{time_us} BETWEEN {EVENT_TIME_MIN_US}L AND {EVENT_TIME_MAX_US}L"
            counts += [
                f"max(CASE WHEN {is_believed} THEN {time_us} END) AS latest_us",
                f"count_if({self._late_sql(node)}) AS late_rows",
            ]
        return [F.expr(count) for count in counts]

    def _read_source(self, node: SourceNode) -> DataFrame:
        sources = self._pipeline.graph.sources
        if self._batch is None:
            return self._pipeline.schemas.empty_frame_with_tasks(self._pipeline.schemas.of(node))
        if len(sources) == 1:
            return self._batch
        column = source_column(next(number for number, known in enumerate(sources) if known is node))
        return self._batch.where(f"{column} IS NOT NULL").selectExpr(f"{column}.*")

    def _late_sql(self, node: SourceNode) -> str:
        """Whether a row is older than the watermark. A row without event time is never late."""
        watermark_us = self._plan.watermark_us
        if node.event_time is None or watermark_us is None:
            return "false"
        time_us = event_time_sql(node)
        return f"coalesce({time_us} < {epoch_constant_sql(watermark_us, time_us)}, false)"

    def _closed_sql(self, node: ClosedRowsNode) -> str:
        """Whether what a row belongs to was closed before this epoch. Without time, it belongs to nothing."""
        previous_us = self._plan.times.previous_watermark_us
        if previous_us is None:
            return f"({node.closes_us}) IS NULL"
        closed_us = epoch_constant_sql(previous_us, node.closes_us)
        return f"coalesce(({node.closes_us}) <= {closed_us}, true)"

    def _route(self, stage: CompiledStage) -> DataFrame:
        """The input of a stage: partition i holds the rows of subtask i."""
        origin, parallelism = stage.stage.origin, self._pipeline.parallelism
        match origin:
            case KeyByNode():
                rows = self._select_needed(stage, self._rows_of(origin))
                return repartition_by_place(rows, parallelism, F.expr(self._place_sql(origin)))
            case CombineNode():
                rows, place = self._rows_of(origin.parent), self._place_sql(origin.parent)
                if stage.stage.name in self._combined_first:
                    return repartition_by_place(origin.function(rows, ()), parallelism, F.expr(place))
                # Never a constant, even if the key is: Spark would not group by it, but gather all rows in
                # one partition to combine them.
                own = F.expr(f"{place} | (spark_partition_id() & 0)")
                routed = repartition_by_place(rows.withColumn(PLACE, own), parallelism, F.col(PLACE))
                return origin.function(routed, (PLACE,)).drop(PLACE)
            case ShuffleNode():
                together = F.expr(subtask_place_sql(origin.expressions, parallelism))
                return repartition_by_place(self._rows_of(origin), parallelism, together)
            case ConnectNode():
                left, right = self._side(origin.left, "left"), self._side(origin.right, "right")
                both = left.unionByName(right, allowMissingColumns=True)
                return repartition_by_place(both, parallelism, F.expr(PLACE)).selectExpr("left", "right")
            case _:
                return self._spread(self._rows_of(origin))

    def _spread(self, frame: DataFrame) -> DataFrame:
        """Give every subtask a part of the rows, the same one if Spark computes it again.

        Rows stay where they are read if that leaves no subtask without a partition and no core without a
        subtask. Otherwise they are split by a hash of all columns: `repartition` assigns rows round-robin,
        and has to sort them first.
        """
        parallelism = self._pipeline.parallelism
        if self._can_stay(frame):
            return frame.coalesce(parallelism)
        if any(_has_no_hash(field.dataType.simpleString()) for field in frame.schema.fields):
            return frame.repartition(parallelism)
        place = subtask_place_sql(map(quote_name, frame.columns), parallelism)
        return repartition_by_place(frame, parallelism, F.expr(place))

    def _can_stay(self, frame: DataFrame) -> bool:
        # The partitions of several sources lie one after the other: a subtask would get all rows of one.
        if len(self._pipeline.graph.sources) > 1:
            return False
        partitions, parallelism = read_partitions(frame), self._pipeline.parallelism
        if partitions is None or partitions < parallelism:
            return False
        return parallelism >= min(partitions, frame.sparkSession.sparkContext.defaultParallelism)

    def _side(self, side: KeyByNode, name: str) -> DataFrame:
        return self._rows_of(side).selectExpr(f"{self._place_sql(side)} AS {PLACE}", f"struct(*) AS {name}")

    def _place_sql(self, node: KeyByNode) -> str:
        return subtask_place_sql(
            map(quote_name, self._pipeline.schemas.key(node)), self._pipeline.parallelism
        )

    def _select_needed(self, stage: CompiledStage, frame: DataFrame) -> DataFrame:
        """Select the columns that the stage's first steps declare, if all of them declare their input."""
        first = [step for step in stage.stage.steps if step.parent is stage.stage.origin]
        declared = [step.operator.input if isinstance(step, ApplyNode) else None for step in first]
        names = set(self._pipeline.schemas.key(stage.stage.origin))
        for columns in declared:
            if columns is None:
                return frame
            names |= {column.name for column in columns_of(columns, what="input")}
        needed = [name for name in frame.columns if name in names]
        # Each column that is named to Spark is a call of several, and many streams have no others.
        return frame if needed == frame.columns else frame.select(*map(quote_name, needed))

    def _keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist()
        self._kept.append(kept)
        return kept


def _observed_counts(observation: Observation) -> dict[str, Any] | None:
    """What an observation counted, or None if no job ran over it or Spark removed it from every plan."""
    # `get` waits for a job, perhaps forever: a transform need not use the rows it is given.
    assert observation._jo is not None, "it is part of a frame"
    if not observation._jo.future().isCompleted():
        return None
    try:
        return dict(observation.get) or None
    except (PySparkException, Py4JError):
        # For an observation that it removed, Spark keeps a row without columns, which it cannot convert.
        return None


def _with_plain_names(frame: DataFrame) -> tuple[DataFrame, tuple[str, ...] | None]:
    """The rows as `mapInArrow` can pass them on, and the names to give back to the columns, if others.

    It looks for each column by its name without quotes: it would take `a.b` for a field of `a`.
    """
    names = tuple(frame.columns)
    if not any("." in name or "`" in name for name in names):
        return frame, None
    return frame.toDF(*[f"column_{number}" for number in range(len(names))]), names


def _has_no_hash(type_: str) -> bool:
    return "map<" in type_ or "variant" in type_


def event_time_sql(node: SourceNode) -> str:
    """The event time of a source's rows, as microseconds since 1970."""
    assert node.event_time is not None
    type_ = node.frame.schema[node.event_time].dataType.simpleString()
    return micros_sql(quote_name(node.event_time), type_)


def collect_reports(frame: DataFrame) -> list[bytes]:
    """Run the job that computes a stage's output, and collect the reports of its subtasks."""
    if len(frame.columns) > 1:
        frame = frame.where(F.col(REPORT).isNotNull()).select(REPORT)
    return [bytes(row[0]) for row in frame.collect()]
