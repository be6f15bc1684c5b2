"""Sends the rows of one output partition of a sink to one subtask.

Each partition then has one open file in total, rather than one in every subtask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakestate.errors import InvalidInputError
from lakestate.sinks.partitioning.event_time import EventTime
from lakestate.sinks.partitioning.partitioner import Partitioning, require_event_time
from lakestate.sinks.sink import Sink
from lakestate.spark.graph.column_names import quote_name, unknown_column_error
from lakestate.spark.graph.nodes import Graph, ShuffleNode, SourceNode, ancestors_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_DAY_US = 86_400_000_000
_UNIT_US = {"minute": 60_000_000, "hour": 3_600_000_000, "day": _DAY_US}


def add_partition_shuffle(sink: Sink, graph: Graph, node: Any) -> Any:
    """Add a shuffle in front of a sink that wants one. Returns the node whose rows the sink takes."""
    partitioning = sink.shuffled_partitioning
    if partitioning is None:
        return node
    timed = [
        found
        for found in ancestors_of(node)
        if isinstance(found, SourceNode) and found.event_time is not None
    ]
    schema = timed[0].frame.schema if timed else None
    event_time = timed[0].event_time if timed else None
    return graph.add(ShuffleNode(node, shuffle_expressions(partitioning, schema, event_time)))


def shuffle_expressions(
    partitioning: Partitioning, schema: StructType | None, event_time: str | None
) -> tuple[str, ...]:
    """SQL expressions that are equal for all rows of an output partition.

    The schema gives the type of the event time. Periods are in UTC, as in the paths.
    """
    if not partitioning.by:
        raise InvalidInputError(
            "rows cannot be shuffled by partition: the output has no partitions",
            action="set partition_by, or remove shuffle_by_partition",
        )
    expressions = [quote_name(column) for column in partitioning.columns]
    pattern = partitioning.event_time
    if pattern is not None:
        name = require_event_time(event_time)
        assert schema is not None, "a stream with event time has columns"
        if name not in schema.names:
            raise unknown_column_error("event_time", name, schema.names)
        expressions.append(
            _period_sql(pattern, micros_sql(quote_name(name), schema[name].dataType.simpleString()))
        )
    return tuple(expressions)


def micros_sql(time: str, type_: str) -> str:
    """A timestamp, itself an SQL expression, as microseconds since 1970, in SQL."""
    if type_ == "timestamp_ntz":
        return f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {time})"
    return f"unix_micros({time})"


def _period_sql(pattern: EventTime, micros: str) -> str:
    if pattern.unit in _UNIT_US:
        return f"floor({micros} / {_UNIT_US[pattern.unit]})"
    # A date has no time zone. The month or year of a timestamp would depend on the session's.
    day = f"date_add(DATE'1970-01-01', CAST(floor({micros} / {_DAY_US}) AS INT))"
    return f"year({day})" if pattern.unit == "year" else f"year({day}) * 12 + month({day})"
