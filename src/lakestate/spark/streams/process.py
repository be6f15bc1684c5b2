"""`stream.key_by(…).process(…)` as nodes: all columns of the rows, by key, for a keyed function."""

from __future__ import annotations

from typing import Any

from lakestate.operators.keyed_function.function import KeyedFunction, timer_time
from lakestate.operators.keyed_function.operator import KeyedFunctionOperator
from lakestate.operators.timers.table import TimerTime
from lakestate.spark.graph.column_names import quote_name
from lakestate.spark.graph.nodes import ApplyNode, KeyByNode
from lakestate.spark.streams.building import Building, quoted

TIME = "_time"
"""The event time of rows that have it in no column of their own."""


def add_keyed_function(
    building: Building, keyed: Any, operator_id: str, function: KeyedFunction
) -> ApplyNode:
    """Add the nodes of a keyed function."""
    where = f"process {operator_id}"
    key = building.key_columns(keyed)
    is_event = timer_time(function) is TimerTime.EVENT
    time_sql = building.require_time(keyed, where) if is_event else building.time_sql(keyed)
    names = [column.name for column in building.columns(keyed)]
    time = next((name for name in names if quote_name(name) == time_sql), TIME if time_sql else None)
    if time == TIME:
        assert time_sql is not None, "without event time there is no column for it"
        prepared = building.select(keyed, {**quoted(names), TIME: time_sql}, where)
        keyed = building.graph.add(KeyByNode(prepared, tuple(quote_name(column.name) for column in key)))
    operator = KeyedFunctionOperator(function, key, time)
    node: ApplyNode = building.graph.add(ApplyNode(keyed, operator_id, operator))
    return node
