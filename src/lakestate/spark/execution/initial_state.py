"""Initial state as the input of a stage: a struct column for each table that is filled."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from lakestate.runtime.initial_state import initial_input
from lakestate.spark.graph.column_names import quote_name
from lakestate.spark.graph.nodes import ApplyNode
from lakestate.spark.graph.schemas import PLACE
from lakestate.spark.graph.stages import Stage
from lakestate.spark.versions.placement import repartition_by_place, subtask_place_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakestate.tables.contract import Table


def route_initial_state(stage: Stage, parallelism: int) -> DataFrame | None:
    """The initial rows of a stage, each with the subtask that owns its key; None if there are none."""
    filled = {
        initial_input(step.step_id, table.name): (_columns(frame, table), table)
        for step in stage.steps
        if isinstance(step, ApplyNode)
        for table in step.operator.tables().values()
        if (frame := step.initial.get(table.name)) is not None
    }
    frames = []
    for name, (frame, table) in filled.items():
        columns = [
            (
                F.struct(*map(quote_name, rows.columns)) if other == name else F.lit(None).cast(rows.schema)
            ).alias(other)
            for other, (rows, _) in filled.items()
        ]
        place = subtask_place_sql(map(quote_name, table.config.routing_columns), parallelism)
        frames.append(frame.select(F.expr(place).alias(PLACE), *columns))
    if not frames:
        return None
    together = reduce(lambda one, other: one.unionAll(other), frames)
    return repartition_by_place(together, parallelism, F.col(PLACE)).drop(PLACE)


def _columns(frame: DataFrame, table: Table) -> DataFrame:
    """The columns of the table, in its types: a hash depends on them."""
    declared = (*table.config.key_columns, *table.config.value_columns)
    return frame.select(
        *[F.col(quote_name(column.name)).cast(column.type).alias(column.name) for column in declared]
    )
