"""Cuts a graph into stages: steps without routing between them run in one `mapInArrow`.

A stage begins where rows are routed. Operators and sinks that follow each other without a new key or a
transform form a tree inside it. A step whose rows return to Spark SQL is exported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakestate.spark.graph.nodes import ApplyNode, Graph, SinkNode, ancestors_of, parents_of


@dataclass(frozen=True, eq=False)
class Stage:
    """A routing and the steps after it, parents before children."""

    name: str
    origin: Any
    """The node whose rows are the stage's input."""
    steps: tuple[ApplyNode | SinkNode, ...]
    exported: tuple[ApplyNode, ...]

    def number_of(self, step: Any) -> int:
        """The position of a step in the stage."""
        return next(number for number, known in enumerate(self.steps) if known is step)

    def parent_number(self, step: ApplyNode | SinkNode) -> int | None:
        """The position of the step that feeds this one, or None if the stage's input does."""
        return None if step.parent is self.origin else self.number_of(step.parent)


def stages_of(graph: Graph) -> list[Stage]:
    """The stages in an order in which each comes after those whose output it needs."""
    groups: dict[int, list[ApplyNode | SinkNode]] = {}
    origins: dict[int, Any] = {}
    for step in graph.steps:
        origin = origin_of(step)
        origins[id(origin)] = origin
        groups.setdefault(id(origin), []).append(step)
    exported = _exported_ids(graph)
    stages = [
        Stage(
            name=steps[0].step_id,
            origin=origins[key],
            steps=tuple(steps),
            exported=tuple(step for step in steps if isinstance(step, ApplyNode) and id(step) in exported),
        )
        for key, steps in groups.items()
    ]
    return _sort_by_dependency(stages)


def origin_of(step: ApplyNode | SinkNode) -> Any:
    """The node whose rows are the input of a step's stage."""
    node: Any = step.parent
    while isinstance(node, ApplyNode):
        node = node.parent
    return node


def forks_of(graph: Graph, stages: list[Stage]) -> set[int]:
    """The ids of nodes outside stages whose rows are needed more than once."""
    needed = [parent for node in graph.nodes if not _is_step(node) for parent in parents_of(node)]
    needed += [stage.origin for stage in stages]
    counts: dict[int, int] = {}
    for node in needed:
        if not _is_step(node):
            counts[id(node)] = counts.get(id(node), 0) + 1
    return {key for key, count in counts.items() if count > 1}


def _exported_ids(graph: Graph) -> set[int]:
    return {
        id(parent)
        for node in graph.nodes
        if not _is_step(node)
        for parent in parents_of(node)
        if isinstance(parent, ApplyNode)
    }


def _sort_by_dependency(stages: list[Stage]) -> list[Stage]:
    owner = {id(step): stage for stage in stages for step in stage.steps}
    done: list[Stage] = []

    def visit(stage: Stage) -> None:
        if stage in done:
            return
        for node in ancestors_of(stage.origin):
            if id(node) in owner:
                visit(owner[id(node)])
        done.append(stage)

    for stage in stages:
        visit(stage)
    return done


def _is_step(node: Any) -> bool:
    return isinstance(node, ApplyNode | SinkNode)
