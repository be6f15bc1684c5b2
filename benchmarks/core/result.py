"""What a benchmark measured, and its JSON: one file for each benchmark, readable without this code."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.core.declaration import Parameters, Point

DIGITS = 4
"""Significant digits of stored values: more would only be noise in the repository."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some values, and the quartiles around it."""

    median: float
    low: float
    high: float


def spread_of(values: Sequence[float]) -> Spread:
    """Median and quartiles; with fewer than four values, the least and the greatest stand for the quartiles.

    >>> spread_of([4, 1, 2, 3, 5])
    Spread(median=3, low=2.0, high=4.0)
    >>> spread_of([2, 1])
    Spread(median=1.5, low=1, high=2)
    """
    if not values:
        raise ValueError("no values: nothing was measured")
    if len(values) < 4:
        return Spread(statistics.median(values), min(values), max(values))
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(statistics.median(values), low, high)


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one contender needed for one question at one set of parameters."""

    question: str
    contender: str
    parameters: Parameters
    unit: str
    values: tuple[float, ...]
    """Those of all repetitions in their order, without warm-up."""

    @property
    def spread(self) -> Spread:
        """Median and quartiles of the values."""
        return spread_of(self.values)


@dataclass(frozen=True, slots=True)
class Absence:
    """A contender that a question has no figure of, and the reason."""

    question: str
    contender: str
    parameters: Parameters
    reason: str
    is_failure: bool = False
    """Whether it should have worked."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Where, when and with what something was measured."""

    machine: str
    versions: dict[str, str]
    date: str
    commit: str


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """One run of one benchmark."""

    benchmark: str
    scale: str
    environment: Environment
    seconds: float
    measurements: tuple[Measurement, ...]
    absences: tuple[Absence, ...] = ()
    failure: str = ""
    """Why the run ended before all was measured."""
    later_failure: str = ""
    """When and why a run after this one failed: this is the last whole one."""

    def of_question(self, question: str) -> list[Measurement]:
        """The measurements of a question, in the order in which they were made."""
        return [each for each in self.measurements if each.question == question]

    def find(self, question: str, point: Point) -> Measurement | None:
        """The measurement at a point, if there is one."""
        found = [
            each
            for each in self.of_question(question)
            if each.contender == point.contender and point.parameters.items() <= each.parameters.items()
        ]
        if len(found) > 1:
            raise ValueError(
                f"{point} of {self.benchmark}/{question} means {len(found)} figures: name more parameters"
            )
        return found[0] if found else None


def encode_result(result: BenchmarkResult) -> str:
    """The JSON of a result, with medians and quartiles for whoever reads it with other tools."""
    stored = asdict(result)
    for fields, measured in zip(stored["measurements"], result.measurements, strict=True):
        fields["values"] = [round_to_digits(value) for value in measured.values]
        spread = spread_of(fields["values"])
        fields["median"] = round_to_digits(spread.median)
        fields["quartiles"] = [round_to_digits(spread.low), round_to_digits(spread.high)]
    # A measurement is one line, so that a difference between two runs can be read.
    lines = [json.dumps(each, ensure_ascii=False) for each in stored.pop("measurements")]
    head = json.dumps(stored, indent=1, ensure_ascii=False).removesuffix("\n}")
    return head + ',\n "measurements": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"


def decode_result(text: str) -> BenchmarkResult:
    """A result from its JSON."""
    stored: dict[str, Any] = json.loads(text)
    return BenchmarkResult(
        benchmark=stored["benchmark"],
        scale=stored["scale"],
        environment=Environment(**stored["environment"]),
        seconds=stored["seconds"],
        measurements=tuple(
            Measurement(
                each["question"], each["contender"], each["parameters"], each["unit"], tuple(each["values"])
            )
            for each in stored["measurements"]
        ),
        absences=tuple(Absence(**each) for each in stored["absences"]),
        failure=stored.get("failure", ""),
        later_failure=stored.get("later_failure", ""),
    )


def load_result(folder: Path, name: str) -> BenchmarkResult | None:
    """The last result of a benchmark in a folder."""
    path = folder / f"{name}.json"
    return decode_result(path.read_text()) if path.exists() else None


def store_result(folder: Path, result: BenchmarkResult) -> None:
    """Write the JSON of a result at once: an interrupted run leaves the last one."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{result.benchmark}.json"
    hidden.write_text(encode_result(result))
    hidden.rename(folder / f"{result.benchmark}.json")


def store_failed_result(folder: Path, result: BenchmarkResult) -> None:
    """Store a run that failed. Part of a result does not replace a whole one, nor nothing a part."""
    last = load_result(folder, result.benchmark)
    is_kept = last is not None and last.scale == result.scale
    if is_kept and last.measurements and not (last.failure and result.measurements):
        result = replace(last, later_failure=f"{result.environment.date}, {result.failure}")
    store_result(folder, result)


def round_to_digits(value: float) -> float:
    """A value with as many significant digits as are stored.

    >>> round_to_digits(1234567.0), round_to_digits(0.0012345), round_to_digits(12.0)
    (1235000, 0.001234, 12)
    """
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded
