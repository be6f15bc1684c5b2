"""Runs contenders in turns and collects what they needed.

All contenders of a comparison get the same data in the same run. Their order is reversed in every other
repetition, because a later one may find a busier disk or a warmer JVM. A contender that cannot take part is
recorded with the reason.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TypeVar

from benchmarks.core.declaration import Benchmark, Parameters
from benchmarks.core.result import Absence, Measurement

Choice = TypeVar("Choice")
CAUSE = re.compile(r"Caused by: (.+)")
JAVA_EXCEPTION = re.compile(r": (\w+\.[\w.$]+.*)")
"""How py4j shows the exception of a call."""
EXCEPTION = re.compile(r"([\w.$]*(?:Error|Exception)\b.*)")
REASON_LETTERS = 240


class Scale(Enum):
    """How much is measured."""

    QUICK = "quick"
    WHOLE = "whole"


class Unavailable(Exception):  # noqa: N818 - not an error of the benchmark
    """Raised by a contender that cannot be installed here or cannot express the question; says why."""


@dataclass
class Run:
    """One run of one benchmark."""

    benchmark: Benchmark
    scale: Scale
    say: Callable[[str], None] = print
    """Told what is being done."""
    measurements: list[Measurement] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)

    def pick(self, *, whole: Choice, quick: Choice) -> Choice:
        """The one for this scale."""
        return whole if self.scale is Scale.WHOLE else quick

    def record(
        self, question: str, contender: str, values: Iterable[float], parameters: Parameters | None = None
    ) -> None:
        """Add the values of a contender; values for the same parameters are joined."""
        self._check(question, contender)
        given, unit = dict(parameters or {}), self.benchmark.question(question).unit
        measured = tuple(float(value) for value in values)
        if not measured:
            raise ValueError(f"{contender} of {self.benchmark.name}/{question} at {given} has no values")
        for place, known in enumerate(self.measurements):
            if (known.question, known.contender, known.parameters) == (question, contender, given):
                self.measurements[place] = Measurement(
                    question, contender, given, unit, known.values + measured
                )
                return
        self.measurements.append(Measurement(question, contender, given, unit, measured))

    def leave_out(
        self, question: str, contender: str, reason: str, parameters: Parameters | None = None
    ) -> None:
        """Say why a contender has no figure."""
        self._check(question, contender)
        self.absences.append(Absence(question, contender, dict(parameters or {}), reason))

    def compare(
        self,
        question: str,
        contenders: Mapping[str, Callable[[int], Iterable[float]]],
        parameters: Parameters | None = None,
        *,
        repetitions: int,
        warm_up: int = 0,
    ) -> None:
        """Call each contender in each repetition with its number, and record the values that it returns.

        The first `warm_up` repetitions are not recorded.
        """
        given = dict(parameters or {})
        shown = " ".join([question, *(f"{value} {name}" for name, value in given.items())])
        out: set[str] = set()
        for number, contender in alternate([*contenders], warm_up + repetitions):
            if contender in out:
                continue
            self.say(f"{shown}: {contender}, {number + 1} of {warm_up + repetitions}")
            try:
                values = [*contenders[contender](number)]
                if number >= warm_up:
                    self.record(question, contender, values, given)
            except Unavailable as reason:
                self.absences.append(Absence(question, contender, given, str(reason)))
                out.add(contender)
            except Exception as failure:  # noqa: BLE001 - the others still run, and the run fails in the end
                text = f"failed: {describe_failure(failure)}"
                self.absences.append(Absence(question, contender, given, text, is_failure=True))
                out.add(contender)
                self.say(text)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A new folder that is removed afterwards."""
        path = Path(tempfile.mkdtemp(prefix="lakestate-bench-"))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _check(self, question: str, contender: str) -> None:
        self.benchmark.question(question)
        if contender not in {known.name for known in self.benchmark.contenders}:
            raise ValueError(f"benchmark {self.benchmark.name} does not declare the contender {contender!r}")


def describe_failure(failure: BaseException) -> str:
    """What an exception says, in one line.

    >>> describe_failure(OSError("disk full\\nmore"))
    'OSError: disk full'
    """
    return f"{type(failure).__name__}: {root_cause(str(failure))}"


def root_cause(text: str) -> str:
    """The line of a message or a stack trace that says why: the innermost cause, if one is named.

    >>> root_cause("An error occurred.\\n: java.io.IOException: no\\n\\tat f(F.java:1)")
    'java.io.IOException: no'
    >>> root_cause("failed\\nCaused by: java.A: a\\n\\tat f\\nCaused by: java.B: b\\n\\t... 9 more")
    'java.B: b'
    >>> root_cause("Traceback:\\n  File x\\nValueError: wrong")
    'ValueError: wrong'
    """
    lines = [line.strip() for line in text.strip().splitlines()] or [""]
    for pattern in (CAUSE, JAVA_EXCEPTION, EXCEPTION):
        if found := [match[1] for line in lines if (match := pattern.match(line))]:
            return found[-1][:REASON_LETTERS]
    return lines[0][:REASON_LETTERS]


def alternate(names: Sequence[str], repetitions: int) -> Iterator[tuple[int, str]]:
    """Each repetition with each name, the order reversed every other time.

    >>> [*alternate(["a", "b"], 2)]
    [(0, 'a'), (0, 'b'), (1, 'b'), (1, 'a')]
    """
    for number in range(repetitions):
        for name in names if number % 2 == 0 else reversed(names):
            yield number, name
