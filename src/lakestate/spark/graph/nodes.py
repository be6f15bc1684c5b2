"""The graph of a pipeline as users build it. Data only: nothing runs here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from lakestate.errors import InvalidInputError
from lakestate.operators.operator import Operator
from lakestate.sinks.muted import MutedSink
from lakestate.sinks.sink import Sink

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Transform: TypeAlias = "Callable[[DataFrame], DataFrame]"
Combine: TypeAlias = "Callable[[DataFrame, Sequence[str]], DataFrame]"
KeyColumn: TypeAlias = "str | Column"


class Late(Enum):
    """What to do with rows older than the watermark. They are counted either way."""

    KEEP = "keep"
    DROP = "drop"


@dataclass(frozen=True, eq=False)
class SourceNode:
    """A streaming DataFrame."""

    name: str
    frame: DataFrame
    event_time: str | None = None
    delay_us: int = 0
    late: Late = Late.KEEP
    file_paths: tuple[str, ...] = ()
    """Where its files lie, besides the path that Spark tells."""
    idle_after_us: int | None = None
    """After how long without rows it no longer holds the watermark back."""


@dataclass(frozen=True, eq=False)
class LateRowsNode:
    """The late rows of a source, as a separate stream."""

    source: SourceNode


@dataclass(frozen=True, eq=False)
class ClosedRowsNode:
    """The rows for which the watermark of the epoch before had reached a time, or that have none.

    What they belong to was closed in an earlier epoch.
    """

    parent: Node
    closes_us: str
    """The time in microseconds since 1970, as an SQL expression."""


@dataclass(frozen=True, eq=False)
class TransformNode:
    """Spark SQL between two steps."""

    parent: Node
    function: Transform


@dataclass(frozen=True, eq=False)
class KeyByNode:
    """Rows routed by key."""

    parent: Node
    columns: tuple[KeyColumn, ...]


@dataclass(frozen=True, eq=False)
class CombineNode:
    """Rows routed by key and combined by Spark.

    The function groups by the key, and by the columns whose names it is given. With that of the subtask,
    after the routing, Spark aggregates without another shuffle. Without it, before the routing, fewer rows
    are routed, for one more shuffle.
    """

    parent: KeyByNode
    function: Combine


@dataclass(frozen=True, eq=False)
class ShuffleNode:
    """Rows for which the SQL expressions are equal go to one subtask. The rows do not change."""

    parent: Node
    expressions: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ConnectNode:
    """Two keyed streams side by side, for an operator with two inputs."""

    left: KeyByNode
    right: KeyByNode


@dataclass(frozen=True, eq=False)
class ApplyNode:
    """An operator."""

    parent: Node
    step_id: str
    operator: Operator
    initial: Mapping[str, DataFrame] = field(default_factory=dict)
    """What its tables hold before the first epoch, by the name of the table."""


@dataclass(frozen=True, eq=False)
class SinkNode:
    """A sink."""

    parent: Node
    step_id: str
    sink: Sink


Node: TypeAlias = (
    "SourceNode | LateRowsNode | ClosedRowsNode | TransformNode | KeyByNode | CombineNode | ShuffleNode "
    "| ConnectNode | ApplyNode | SinkNode"
)


@dataclass
class Graph:
    """All nodes of a pipeline, in the order they were added: parents before children."""

    nodes: list[Any] = field(default_factory=list)

    def add(self, node: Any) -> Any:
        """Add a node. Its parents are already in the graph. Two steps with one id are refused."""
        if isinstance(node, ApplyNode | SinkNode) and node.step_id in {each.step_id for each in self.steps}:
            raise InvalidInputError(
                "two operators or sinks have the same id",
                found=node.step_id,
                action="give one of them another: state is found again by it",
            )
        self.nodes.append(node)
        return node

    @property
    def sources(self) -> list[SourceNode]:
        """The sources."""
        return [node for node in self.nodes if isinstance(node, SourceNode)]

    @property
    def steps(self) -> list[ApplyNode | SinkNode]:
        """The operators and sinks."""
        return [node for node in self.nodes if isinstance(node, ApplyNode | SinkNode)]

    @property
    def sinks(self) -> list[SinkNode]:
        """The sinks."""
        return [node for node in self.nodes if isinstance(node, SinkNode)]


def mute(graph: Graph) -> Graph:
    """The same graph with sinks that write nothing. No node has a sink as its parent, so the others stay."""
    return Graph(
        [
            replace(node, sink=MutedSink(tuple(node.sink.tables()))) if isinstance(node, SinkNode) else node
            for node in graph.nodes
        ]
    )


def sinks_in(graph: Graph) -> dict[str, Sink]:
    """The sinks of a graph, by id."""
    return {node.step_id: node.sink for node in graph.sinks}


def parents_of(node: Any) -> Sequence[Any]:
    """The nodes that a node takes rows from."""
    match node:
        case SourceNode():
            return ()
        case LateRowsNode():
            return (node.source,)
        case ConnectNode():
            return (node.left, node.right)
        case _:
            return (node.parent,)


def ancestors_of(node: Any) -> Iterator[Any]:
    """The node itself and all nodes upstream of it, nearest first."""
    yield node
    for parent in parents_of(node):
        yield from ancestors_of(parent)
