"""The page of the benchmarks and the tables of the README are those that the stored results give."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("matplotlib")
from benchmarks.core.catalogue import RESULTS, declared_benchmarks
from benchmarks.render import load_results, out_of_date


def test_tables_and_page_are_made_from_the_stored_results() -> None:
    assert out_of_date(RESULTS, load_results(RESULTS)) == [], "run python -m benchmarks.render"


def test_every_stored_result_belongs_to_a_benchmark() -> None:
    declared = {benchmark.name for benchmark in declared_benchmarks()}
    assert {file.stem for file in RESULTS.glob("*.json")} <= declared


def test_every_measurement_answers_a_declared_question() -> None:
    for benchmark, result in load_results(RESULTS):
        asked = {question.name for question in benchmark.questions}
        assert {each.question for each in (result.measurements if result else ())} <= asked
