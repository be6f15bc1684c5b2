"""What is measured is stored whole, and what is stored says what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.core.declaration import Point
from benchmarks.core.result import (
    Absence,
    BenchmarkResult,
    Environment,
    Measurement,
    Spread,
    decode_result,
    encode_result,
    load_result,
    spread_of,
    store_result,
)

WHERE = Environment("2 cores", {"python": "3.11.0"}, "2026-01-01 00:00 UTC", "abc")


def result(*measurements: Measurement, absences: tuple[Absence, ...] = ()) -> BenchmarkResult:
    return BenchmarkResult("x", "whole", WHERE, 1.5, measurements, absences)


def measured(contender: str, *values: float, **parameters: int) -> Measurement:
    return Measurement("q", contender, parameters, "ms", values)


def test_a_result_survives_its_json() -> None:
    given = result(
        measured("a", 1, 2.5, rows=10),
        measured("b", 3, rows=10),
        absences=(Absence("q", "c", {"rows": 10}, "not installed"),),
    )
    assert decode_result(encode_result(given)) == given


def test_a_result_without_measurements_survives_its_json() -> None:
    assert decode_result(encode_result(result())) == result()


def test_the_json_names_the_median_and_the_quartiles() -> None:
    stored = json.loads(encode_result(result(measured("a", 1, 2, 3, 4, 100))))["measurements"][0]
    assert (stored["median"], stored["quartiles"]) == (3, [2, 4])


def test_an_outlier_does_not_move_the_median() -> None:
    assert spread_of([10, 11, 12, 13, 1000]) == Spread(12, 11, 13)


def test_few_values_are_spread_between_the_least_and_the_greatest() -> None:
    assert spread_of([3, 1, 8]) == Spread(3, 1, 8)


def test_nothing_has_no_median() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        spread_of([])


def test_a_point_finds_the_measurement_whose_parameters_include_its_own() -> None:
    both = measured("a", 1, rows=10, keys=2), measured("a", 2, rows=20, keys=2)
    assert result(*both).find("q", Point("a", {"rows": 20})) == both[1]
    assert result(*both).find("q", Point("b", {"rows": 20})) is None


def test_a_point_that_means_two_measurements_is_refused() -> None:
    with pytest.raises(ValueError, match="name more parameters"):
        result(measured("a", 1, rows=10), measured("a", 2, rows=20)).find("q", Point("a"))


def test_a_stored_result_replaces_the_last_one(tmp_path: Path) -> None:
    assert load_result(tmp_path, "x") is None
    store_result(tmp_path, result(measured("a", 1)))
    store_result(tmp_path, result(measured("a", 2)))
    assert load_result(tmp_path, "x") == result(measured("a", 2))
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]
