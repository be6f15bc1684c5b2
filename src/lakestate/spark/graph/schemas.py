"""The columns of every node of a graph, inferred before anything starts.

Transforms are applied to an empty DataFrame, which Spark analyses without running anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from lakestate.errors import InvalidInputError
from lakestate.protocol.metadata import Column
from lakestate.spark.graph.column_names import (
    check_names_are_columns,
    column_named,
    is_name,
    quote_name,
    unknown_column_error,
)
from lakestate.spark.graph.nodes import (
    ApplyNode,
    ClosedRowsNode,
    CombineNode,
    ConnectNode,
    Graph,
    KeyByNode,
    KeyColumn,
    LateRowsNode,
    ShuffleNode,
    SinkNode,
    SourceNode,
    TransformNode,
    parents_of,
)
from lakestate.spark.graph.problems import OnProblem, raise_problem, report_problems
from lakestate.spark.spark_reason import spark_reason
from lakestate.tables.arrow.schema import arrow_fields, columns_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACE = "__place"
"""The column that says to which subtask a row is routed."""


class Schemas:
    """The columns of nodes, and the key of those that are keyed."""

    def __init__(self, session: SparkSession, graph: Graph, on_problem: OnProblem = raise_problem) -> None:
        self.session = session
        """Creates the empty frames. It is the user's session until the query has its own."""
        self._known: dict[int, StructType] = {}
        self._keys: dict[int, tuple[str, ...]] = {}
        self.learn(graph, on_problem)

    def learn(self, graph: Graph, on_problem: OnProblem = raise_problem) -> None:
        """Infer the columns of nodes that are not known yet."""
        for node in graph.nodes:
            # Below a node with a problem, nothing is known either.
            if not self.knows(node) and all(self.knows(parent) for parent in parents_of(node)):
                with report_problems(on_problem):
                    self._known[id(node)] = self._infer(node)

    def knows(self, node: Any) -> bool:
        """Whether the columns of a node could be inferred."""
        return id(node) in self._known

    def of(self, node: Any) -> StructType:
        """The columns of a node's rows, as a Spark schema."""
        return self._known[id(node)]

    def columns(self, node: Any) -> tuple[Column, ...]:
        """The columns of a node's rows, as tables declare them."""
        return columns_of(spark_ddl(self.of(node)), what="row")

    def arrow(self, node: Any) -> pa.Schema:
        """The columns of a node's rows, as an Arrow schema."""
        return pa.schema(arrow_fields(self.columns(node)))

    def key(self, node: Any) -> tuple[str, ...]:
        """The key columns of a node, empty if it is not keyed."""
        return self._keys.get(id(node), ())

    def empty_frame(self, node: Any) -> DataFrame:
        """An empty DataFrame with the columns of a node."""
        return self.session.createDataFrame([], self.of(node))

    def empty_frame_with_tasks(self, schema: StructType) -> DataFrame:
        """An empty DataFrame that Spark does not recognise as empty, so that its tasks still run."""
        columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields]
        return self.session.range(1).where(F.col("id") < 0).select(*columns)

    def _infer(self, node: Any) -> StructType:
        match node:
            case SourceNode():
                return node.frame.schema
            case LateRowsNode():
                return self.of(node.source)
            case TransformNode():
                return self._transform_schema(node)
            case KeyByNode():
                return self._key_schema(node)
            case CombineNode():
                return self._combined_schema(node)
            case ShuffleNode() | ClosedRowsNode():
                return self.of(node.parent)
            case ConnectNode() | SinkNode():
                return StructType()
            case ApplyNode():
                return self._output_schema(node)
        raise AssertionError(f"unknown node {node}")

    def _transform_schema(self, node: TransformNode) -> StructType:
        try:
            found = node.function(self.empty_frame(node.parent))
        except (PySparkException, Py4JError) as cause:
            raise InvalidInputError(
                "a transform does not fit its input",
                object_name=getattr(node.function, "__name__", "transform"),
                found=spark_reason(cause),
                expected=f"columns {', '.join(self.of(node.parent).names)}",
            ) from cause
        if not isinstance(found, DataFrame):
            raise InvalidInputError(
                "a transform did not return a DataFrame", found=type(found).__name__, expected="DataFrame"
            )
        return found.schema

    def _key_schema(self, node: KeyByNode) -> StructType:
        try:
            frame, names = _add_checked_key_columns(self.empty_frame(node.parent), node)
        except (PySparkException, Py4JError) as cause:
            raise InvalidInputError(
                "a key does not fit its input",
                object_name=", ".join(str(column) for column in node.columns),
                found=spark_reason(cause),
                expected=f"columns or expressions of {', '.join(self.of(node.parent).names)}",
            ) from cause
        self._keys[id(node)] = names
        return frame.schema

    def _combined_schema(self, node: CombineNode) -> StructType:
        self._keys[id(node)] = self.key(node.parent)
        return node.function(self.empty_frame(node.parent), ()).schema

    def _output_schema(self, node: ApplyNode) -> StructType:
        columns = node.operator.output_columns
        self._keys[id(node)] = self._keys.get(id(node.parent), ())
        if not columns:
            return StructType()
        ddl = ", ".join(f"{quote_name(column.name)} {column.type}" for column in columns)
        return self.session.createDataFrame([], ddl).schema


def add_key_columns(frame: DataFrame, node: KeyByNode) -> tuple[DataFrame, tuple[str, ...]]:
    """The rows with every key as a column, and the names of those columns.

    A key that is an expression becomes an additional column, named by its alias.
    """
    names: list[str] = []
    for key in node.columns:
        frame, name = _add_key_column(frame, key)
        names.append(name)
    return frame, tuple(names)


def _add_checked_key_columns(frame: DataFrame, node: KeyByNode) -> tuple[DataFrame, tuple[str, ...]]:
    """The same, after checking that the names in a key are those of columns, or of keys before it."""
    names: list[str] = []
    for key in node.columns:
        if not isinstance(key, str):
            check_names_are_columns("key_by", str(key), key, frame)
        elif column_named(key, frame.columns) is None:
            if is_name(key):
                raise unknown_column_error("key_by", key, frame.columns)
            check_names_are_columns("key_by", key, F.expr(key), frame)
        frame, name = _add_key_column(frame, key)
        names.append(name)
    return frame, tuple(names)


def _add_key_column(frame: DataFrame, key: KeyColumn) -> tuple[DataFrame, str]:
    known = column_named(key, frame.columns) if isinstance(key, str) else None
    if known is not None:
        return frame, known
    column = F.expr(key) if isinstance(key, str) else key
    keyed = frame.select("*", column)
    added = keyed.columns[-1]
    same = [name for name in frame.columns if name.lower() == added.lower()]
    if not same:
        return keyed, added
    if added in same and _is_plain(column, added, frame):
        return frame, added
    raise InvalidInputError(
        "a key expression has the name of a different column"
        if added in same
        else "the name of a key differs from a column only in case",
        object_name=str(key),
        found=f"column {same[0]} in the input",
        action="give the key another alias, or change the column before key_by"
        if added in same
        else f"write {same[0]}, or give the key another alias",
    )


def _is_plain(column: SparkColumn, name: str, frame: DataFrame) -> bool:
    """Whether it is the column itself, which Spark displays as its name, possibly qualified."""
    shown = str(column).removeprefix("Column<'").removesuffix("'>")
    if shown in (name, quote_name(name)):
        return True
    # Spark displays a field of a struct in the same way. It ignores case in column names.
    columns = {known.lower() for known in frame.columns}
    is_qualified = shown.endswith(f".{name}") and shown.replace(".", "").isidentifier()
    return is_qualified and shown.partition(".")[0].lower() not in columns


def spark_ddl(schema: StructType) -> str:
    """A Spark schema as the text that state tables parse."""
    return ", ".join(f"{quote_name(field.name)} {field.dataType.simpleString()}" for field in schema.fields)
