"""A pipeline ready to run: stages with their pickled code, and one streaming DataFrame to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, StructField, StructType

from lakestate.coordinator.engine.due_epochs import FollowedTime
from lakestate.job.state_backend import StateBackend
from lakestate.operators.operator import follows_clock, follows_event_time
from lakestate.protocol.metadata import Manifest
from lakestate.runtime.sink_step import SinkStep, sinks_due_us
from lakestate.runtime.steps import ChainLink, OperatorStep
from lakestate.runtime.subtask import StagePlan
from lakestate.spark.graph.checks import event_time_of, tables_of
from lakestate.spark.graph.nodes import ApplyNode, CombineNode, ConnectNode, Graph, SinkNode, SourceNode
from lakestate.spark.graph.schemas import Schemas
from lakestate.spark.graph.stages import Stage, forks_of, stages_of
from lakestate.spark.tasks.stage_task import REPORT, Export, StageCode
from lakestate.tables.registry import register_declared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, eq=False)
class CompiledStage:
    """A stage and what its tasks need."""

    stage: Stage
    code: StageCode
    input_names: tuple[str, ...]
    exports: tuple[Export, ...]
    output: StructType


@dataclass(frozen=True, eq=False)
class CompiledPipeline:
    """All stages in the order they run."""

    graph: Graph
    schemas: Schemas
    parallelism: int
    stages: tuple[CompiledStage, ...]
    forks: frozenset[int]
    """Ids of nodes whose rows are persisted, because several stages need them."""

    @property
    def steps(self) -> Mapping[str, int]:
        """The parallelism of every operator and sink."""
        return {node.step_id: self.parallelism for node in self.graph.steps}

    @property
    def counts_rows_in_first_stage(self) -> bool:
        """Whether the rows of the source all reach the first stage, which then counts them."""
        return len(self.graph.sources) == 1 and not isinstance(self.stages[0].stage.origin, CombineNode)

    @property
    def has_initial_state(self) -> bool:
        """Whether tables are filled before the first epoch that reads rows."""
        return any(isinstance(node, ApplyNode) and node.initial for node in self.graph.steps)

    @property
    def follows(self) -> FollowedTime:
        """Which times its operators and sinks follow."""
        operators = [node.operator for node in self.graph.steps if isinstance(node, ApplyNode)]
        return FollowedTime(
            event_time=any(follows_event_time(operator) for operator in operators)
            or any(node.sink.follows_event_time for node in self.graph.sinks),
            processing_time=any(follows_clock(operator) for operator in operators),
            output_time=any(node.sink.follows_clock for node in self.graph.sinks),
        )

    def outputs_due_us(self, newest: Manifest) -> int | None:
        """The processing time for which the sinks of an epoch want another one, even without rows."""
        return sinks_due_us({node.step_id: node.sink for node in self.graph.sinks}, newest)


def compile_pipeline(
    graph: Graph,
    schemas: Schemas,
    parallelism: int,
    backend: StateBackend,
    dropped_tables: Mapping[str, tuple[str, ...]],
) -> CompiledPipeline:
    """Cut a checked graph into stages and pickle their code.

    `dropped_tables` are stored tables of steps that are not restored any more.
    """
    # The driver merges and collects the files of these tables, too.
    register_declared(table for node in graph.steps for table in tables_of(node))
    stages = stages_of(graph)
    return CompiledPipeline(
        graph,
        schemas,
        parallelism,
        tuple(_compile_stage(stage, schemas, parallelism, backend, dropped_tables) for stage in stages),
        frozenset(forks_of(graph, stages)),
    )


def combine_sources(graph: Graph) -> DataFrame:
    """One streaming DataFrame of all sources: plain rows for one source, else a struct column per source."""
    sources = graph.sources
    if len(sources) == 1:
        return sources[0].frame
    frames = [_as_struct(source, sources) for source in sources]
    combined = frames[0]
    for frame in frames[1:]:
        combined = combined.unionAll(frame)
    return combined


def source_column(number: int) -> str:
    """The name of a source's column in the combined DataFrame."""
    return f"source_{number}"


def _as_struct(source: SourceNode, sources: list[SourceNode]) -> DataFrame:
    columns = [
        (F.struct("*") if other is source else F.lit(None).cast(other.frame.schema)).alias(
            source_column(number)
        )
        for number, other in enumerate(sources)
    ]
    return source.frame.select(*columns)


def _compile_stage(
    stage: Stage,
    schemas: Schemas,
    parallelism: int,
    backend: StateBackend,
    dropped_tables: Mapping[str, tuple[str, ...]],
) -> CompiledStage:
    links = tuple(
        ChainLink(_step(node, schemas), stage.parent_number(node), exported=node in stage.exported)
        for node in stage.steps
    )
    exports = tuple(
        Export(stage.number_of(node), f"row_{number}", schemas.arrow(node))
        for number, node in enumerate(stage.exported)
    )
    fields = [
        StructField(export.column, schemas.of(node))
        for export, node in zip(exports, stage.exported, strict=True)
    ]
    return CompiledStage(
        stage,
        StageCode.of(StagePlan(stage.name, parallelism, links, dropped_tables), backend),
        ("left", "right") if isinstance(stage.origin, ConnectNode) else ("",),
        exports,
        StructType([*fields, StructField(REPORT, BinaryType())]),
    )


def _step(node: ApplyNode | SinkNode, schemas: Schemas) -> Any:
    if isinstance(node, ApplyNode):
        return OperatorStep(node.step_id, node.operator)
    return SinkStep(node.step_id, node.sink, schemas.arrow(node.parent), event_time_of(node, schemas))
