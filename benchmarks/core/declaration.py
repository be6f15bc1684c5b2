"""What a benchmark says about itself: its questions, its contenders and their settings, and its aims.

Values only. Nothing here measures, reads or draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

Parameter = str | int | float
Parameters = Mapping[str, Parameter]


class Direction(Enum):
    """On which side of its bound a figure should be."""

    AT_LEAST = "at least"
    AT_MOST = "at most"


@dataclass(frozen=True, slots=True)
class Contender:
    """Somebody who is measured, and the settings that are recommended for them and used."""

    name: str
    settings: str


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement: that of a contender whose parameters include these."""

    contender: str
    parameters: Parameters = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Aim:
    """A bound on a measurement, or on the ratio of two."""

    what: str
    numerator: Point
    denominator: Point | None
    direction: Direction
    bound: float
    why: str = ""
    """Shown where the aim is missed: what the time or the bytes are spent on."""
    in_readme: bool = True

    def is_reached(self, figure: float) -> bool:
        """Whether a figure is on the right side of the bound."""
        return figure >= self.bound if self.direction is Direction.AT_LEAST else figure <= self.bound

    def shortfall(self, figure: float) -> float:
        """By which share of the bound a figure misses it; 0 where it is reached."""
        return 0.0 if self.is_reached(figure) else abs(figure - self.bound) / self.bound


def at_least(
    bound: float,
    what: str,
    numerator: Point,
    denominator: Point | None = None,
    *,
    why: str = "",
    in_readme: bool = True,
) -> Aim:
    """An aim whose figure should be this large or larger."""
    return Aim(what, numerator, denominator, Direction.AT_LEAST, bound, why, in_readme)


def at_most(
    bound: float,
    what: str,
    numerator: Point,
    denominator: Point | None = None,
    *,
    why: str = "",
    in_readme: bool = True,
) -> Aim:
    """An aim whose figure should be this small or smaller."""
    return Aim(what, numerator, denominator, Direction.AT_MOST, bound, why, in_readme)


@dataclass(frozen=True, slots=True)
class Question:
    """One question to all contenders: one table, one figure."""

    name: str
    title: str
    unit: str
    """`rows/s`, `ms`, `bytes`, or a plural that is counted, such as `files`."""
    axis: str | None = None
    """The parameter along the figure's horizontal axis; bars if there is none."""
    is_stacked: bool = False
    """Whether contenders are parts of one whole: a bar for each set of parameters, made of them."""
    text: str = ""
    aims: tuple[Aim, ...] = ()
    in_readme: bool = False
    """Whether the README shows the figure."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A module `bench_<name>.py` has one of these as `BENCHMARK`, and a function `measure(run)`."""

    name: str
    title: str
    text: str
    contenders: tuple[Contender, ...]
    questions: tuple[Question, ...]
    seconds: tuple[float, float]
    """About how long it takes, quick and whole, until a result says so."""
    in_quick: bool = False
    """Whether `make bench-quick` runs it."""

    def question(self, name: str) -> Question:
        """The question of this name."""
        found = [question for question in self.questions if question.name == name]
        if not found:
            known = ", ".join(question.name for question in self.questions)
            raise ValueError(f"benchmark {self.name} has no question {name!r}; it has: {known}")
        return found[0]
