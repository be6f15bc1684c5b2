"""What all benchmarks share: declarations, results, repetitions, and what is made of results.

A benchmark declares its questions, contenders and aims (`declaration`), and measures with a `Run` (`run`).
What it measured is a `BenchmarkResult` (`result`), stored as JSON. The page, the figures and the tables of
the README are made from that JSON and the declarations (`page`, `figures`, `readme`), so that a text can be
changed without measuring again.
"""

from __future__ import annotations

from benchmarks.core.declaration import (
    Aim,
    Benchmark,
    Contender,
    Direction,
    Point,
    Question,
    at_least,
    at_most,
)
from benchmarks.core.run import Run, Scale, Unavailable

__all__ = [
    "Aim",
    "Benchmark",
    "Contender",
    "Direction",
    "Point",
    "Question",
    "Run",
    "Scale",
    "Unavailable",
    "at_least",
    "at_most",
]
