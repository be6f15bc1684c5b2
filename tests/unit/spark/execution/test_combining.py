"""Whether rows are combined before or after they are routed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lakestate.coordinator.epoch_plan import SubtaskReport
from lakestate.observability.progress import StepMetrics
from lakestate.spark.execution.combining import Combining
from lakestate.spark.graph.nodes import CombineNode, KeyByNode


def combining(*names: str) -> Combining:
    nowhere: Any = SimpleNamespace()
    origin = CombineNode(KeyByNode(nowhere, ("a",)), lambda frame, subtask: frame)
    stages = [
        SimpleNamespace(
            stage=SimpleNamespace(name=name, origin=origin, steps=(SimpleNamespace(step_id=name),))
        )
        for name in names
    ]
    pipeline: Any = SimpleNamespace(stages=stages)
    return Combining(pipeline)


def reports(**rows: int) -> list[SubtaskReport]:
    halves = [(name, count // 2) for name, count in rows.items() for _ in range(2)]
    return [SubtaskReport(name, 0, (), {name: StepMetrics(rows_in=count)}) for name, count in halves]


@pytest.mark.parametrize(
    ("read", "left", "expected"),
    [
        (1_000_000, 5_000, {"a"}),
        (1_000_000, 50_000, {"a"}),
        (1_000_000, 100_000, set()),
        (50_000, 10, set()),
    ],
)
def test_rows_are_combined_first_if_few_are_left_of_many(read: int, left: int, expected: set[str]) -> None:
    found = combining("a")
    found.learn(reports(a=left), read)
    assert found.combined_first == expected


def test_an_epoch_without_rows_changes_nothing() -> None:
    found = combining("a", "b")
    found.learn(reports(a=10, b=900_000), 1_000_000)
    found.learn(reports(a=0, b=0), 0)
    assert found.combined_first == {"a"}
