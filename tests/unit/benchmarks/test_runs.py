"""Contenders take turns, warm-up does not count, and nobody is left out silently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from benchmarks.core import Benchmark, Contender, Question, Run, Scale, Unavailable
from benchmarks.core.result import Absence, Measurement
from tests.support.repository import ROOT

BENCHMARK = Benchmark(
    name="x",
    title="X",
    text="",
    contenders=(Contender("a", ""), Contender("b", "")),
    questions=(Question("q", "Q", "ms"),),
    seconds=(1, 1),
)


@pytest.fixture
def run() -> Run:
    return Run(BENCHMARK, Scale.QUICK, say=lambda text: None)


def contenders(called: list[tuple[str, int]]) -> dict[str, Callable[[int], list[float]]]:
    def call(name: str, number: int) -> list[float]:
        called.append((name, number))
        return [number]

    return {name: lambda number, name=name: call(name, number) for name in "ab"}  # type: ignore[misc]


def test_the_order_of_contenders_alternates(run: Run) -> None:
    called: list[tuple[str, int]] = []
    run.compare("q", contenders(called), repetitions=3)
    assert called == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]


def test_warm_up_is_run_and_not_recorded(run: Run) -> None:
    called: list[tuple[str, int]] = []
    run.compare("q", contenders(called), {"rows": 1}, repetitions=2, warm_up=1)
    assert len(called) == 6
    assert run.measurements == [
        Measurement("q", "b", {"rows": 1}, "ms", (1, 2)),
        Measurement("q", "a", {"rows": 1}, "ms", (1, 2)),
    ]


def test_a_contender_that_is_unavailable_is_named_with_the_reason(run: Run) -> None:
    def unavailable(number: int) -> list[float]:
        raise Unavailable("no jars here")

    run.compare("q", {"a": unavailable, "b": lambda number: [5]}, repetitions=2)
    assert run.absences == [Absence("q", "a", {}, "no jars here")]
    assert run.measurements == [Measurement("q", "b", {}, "ms", (5, 5))]


def test_a_contender_that_fails_does_not_keep_the_others_from_running(run: Run) -> None:
    def failing(number: int) -> list[float]:
        raise OSError("disk full\nmore")

    run.compare("q", {"a": failing, "b": lambda number: [5]}, repetitions=2)
    assert run.absences == [Absence("q", "a", {}, "failed: OSError: disk full", is_failure=True)]
    assert run.measurements == [Measurement("q", "b", {}, "ms", (5, 5))]


def test_a_contender_that_returns_nothing_has_failed(run: Run) -> None:
    run.compare("q", {"a": lambda number: [], "b": lambda number: [5]}, repetitions=1)
    assert [(each.contender, each.is_failure) for each in run.absences] == [("a", True)]
    assert run.measurements == [Measurement("q", "b", {}, "ms", (5,))]


def test_values_for_other_parameters_are_another_measurement(run: Run) -> None:
    run.record("q", "a", [1], {"rows": 1})
    run.record("q", "a", [2], {"rows": 2})
    run.record("q", "a", [3], {"rows": 1})
    assert [each.values for each in run.measurements] == [(1, 3), (2,)]


def test_a_contender_without_values_is_refused(run: Run) -> None:
    with pytest.raises(ValueError, match="has no values"):
        run.record("q", "a", [])


@pytest.mark.parametrize(("question", "contender"), [("other", "a"), ("q", "other")])
def test_what_is_not_declared_is_refused(run: Run, question: str, contender: str) -> None:
    with pytest.raises(ValueError, match="other"):
        run.record(question, contender, [1])


def test_the_example_of_the_documentation_measures_what_it_declares() -> None:
    example: dict[str, Any] = {}
    exec((ROOT / "benchmarks/README.md").read_text().split("```python\n")[1].split("```")[0], example)
    run = Run(example["BENCHMARK"], Scale.QUICK, say=lambda text: None)
    example["measure"](run)
    assert {(each.contender, len(each.values)) for each in run.measurements} == {
        ("sorted", 5),
        ("list.sort", 5),
    }


def test_a_folder_is_removed_after_its_use(run: Run) -> None:
    with run.folder() as folder:
        (folder / "file").write_text("x")
    assert not folder.exists()
