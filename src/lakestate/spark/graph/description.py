"""A node of a graph on one line: the way that its rows have come."""

from __future__ import annotations

from typing import Any

from lakestate.spark.graph.nodes import (
    ApplyNode,
    ClosedRowsNode,
    ConnectNode,
    Graph,
    KeyByNode,
    LateRowsNode,
    SinkNode,
    SourceNode,
    TransformNode,
)


def describe_node(node: Any) -> str:
    """The steps from the source to a node."""
    match node:
        case SourceNode():
            return node.name
        case LateRowsNode():
            return f"{node.source.name} → late_rows"
        case ClosedRowsNode():
            return f"{describe_node(node.parent)} → late_rows"
        case TransformNode():
            return f"{describe_node(node.parent)} → {getattr(node.function, '__name__', 'transform')}"
        case KeyByNode():
            keys = ", ".join(map(_column_text, node.columns))
            return f"{describe_node(node.parent)} → key_by({keys})"
        case ConnectNode():
            return f"({describe_node(node.left)}) with ({describe_node(node.right)})"
        case ApplyNode() | SinkNode():
            return f"{describe_node(node.parent)} → {node.step_id}"
    return describe_node(node.parent)


def describe_graph(graph: Graph) -> str:
    """The names of sources, operators and sinks, as far as there are any."""
    groups = {
        "sources": [node.name for node in graph.sources],
        "operators": [node.step_id for node in graph.steps if isinstance(node, ApplyNode)],
        "sinks": [node.step_id for node in graph.sinks],
    }
    return "".join(f", {kind}={names}" for kind, names in groups.items() if names)


def _column_text(column: Any) -> str:
    return str(column).removeprefix("Column<'").removesuffix("'>")
