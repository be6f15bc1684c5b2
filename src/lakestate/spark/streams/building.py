"""`Building`: the graph of a pipeline while it is built, with the columns of what is there.

Ready operators need the types of their input when they are added: their state and output depend on them,
and what does not fit is refused on the line that asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from lakestate.errors import InvalidInputError
from lakestate.protocol.metadata import Column
from lakestate.spark.graph.column_names import (
    check_names_are_columns,
    column_named,
    is_name,
    quote_name,
    unknown_column_error,
)
from lakestate.spark.graph.nodes import ApplyNode, Graph, SourceNode, TransformNode, parents_of
from lakestate.spark.graph.partition_shuffle import micros_sql
from lakestate.spark.graph.schemas import Schemas
from lakestate.spark.spark_reason import spark_reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIME_TYPES = ("timestamp", "timestamp_ntz")


class Building:
    """The nodes so far."""

    def __init__(self) -> None:
        self.graph = Graph()
        self._schemas: Schemas | None = None

    @property
    def schemas(self) -> Schemas:
        """The columns of all nodes so far."""
        if self._schemas is None:
            self._schemas = Schemas(self.graph.sources[0].frame.sparkSession, self.graph)
        else:
            self._schemas.learn(self.graph)
        return self._schemas

    def columns(self, node: Any) -> tuple[Column, ...]:
        """The columns of a node's rows."""
        return self.schemas.columns(node)

    def key_columns(self, node: Any) -> tuple[Column, ...]:
        """The key columns of a keyed node's rows."""
        types = {column.name: column for column in self.columns(node)}
        return tuple(types[name] for name in self.schemas.key(node))

    def select(self, node: Any, expressions: Mapping[str, str], what: str) -> Any:
        """A node whose rows have exactly these columns, each an SQL expression over those of `node`.

        An expression that does not fit is refused here, with `what` it is for.
        """
        frame = self.schemas.empty_frame(node)
        for text in expressions.values():
            check_expression(what, text, frame)
        columns = [f"{text} AS {quote_name(name)}" for name, text in expressions.items()]

        def select_columns(rows: DataFrame) -> DataFrame:
            return rows.selectExpr(*columns)

        return self.graph.add(TransformNode(node, select_columns))

    def time_sql(self, node: Any) -> str | None:
        """The event time of a node's rows, as an SQL expression; None if they have none.

        It is a column of their source, as long as they have it, or what an operator has put in its place.
        """
        types = {column.name: column.type for column in self.columns(node)}
        while not isinstance(node, SourceNode):
            if isinstance(node, ApplyNode) and node.operator.output_time is not None:
                return node.operator.output_time
            node = parents_of(node)[0]
        if node.event_time is None or types.get(node.event_time) not in _TIME_TYPES:
            return None
        return quote_name(node.event_time)

    def require_time(self, node: Any, what: str) -> str:
        """The same, for what cannot do without."""
        found = self.time_sql(node)
        if found is None:
            raise InvalidInputError(
                f"{what} needs event time, and the rows have none",
                found=", ".join(column.name for column in self.columns(node)),
                action='name it with source(…, event_time="ts"), and keep that column in transforms',
            )
        return found

    def require_time_us(self, node: Any, what: str) -> tuple[str, str]:
        """The event time in microseconds since 1970, as an SQL expression, and the type of the event time."""
        time = self.require_time(node, what)
        type_ = self.schemas.empty_frame(node).select(F.expr(time)).schema[0].dataType.simpleString()
        return micros_sql(f"({time})", type_), type_


def check_expression(what: str, text: str, frame: DataFrame) -> None:
    """Refuse an SQL expression that the columns of a frame do not allow."""
    if is_name(text) and column_named(text, frame.columns) is None:
        raise unknown_column_error(what, text, frame.columns)
    try:
        check_names_are_columns(what, text, F.expr(text), frame)
        frame.select(F.expr(text))
    except (PySparkException, Py4JError) as cause:
        raise InvalidInputError(
            f"an expression of {what} does not fit its input",
            object_name=text,
            found=spark_reason(cause),
            expected=f"an expression over {', '.join(frame.columns)}",
        ) from cause


def quoted(names: Sequence[str]) -> dict[str, str]:
    """Columns as expressions for `Building.select`, each under its own name."""
    return {name: quote_name(name) for name in names}
