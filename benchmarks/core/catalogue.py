"""Which benchmarks there are: every `bench_<name>.py` in this folder and in the folders below it."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from benchmarks.core.declaration import Benchmark

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
QUICK = RESULTS / "quick"
LOGS = RESULTS / "logs"
PREFIX = "bench_"


def benchmark_modules() -> dict[str, str]:
    """The module of each benchmark, by the benchmark's name."""
    files = {file.stem.removeprefix(PREFIX): file for file in ROOT.rglob(f"{PREFIX}*.py")}
    return {
        name: ".".join(["benchmarks", *file.relative_to(ROOT).with_suffix("").parts])
        for name, file in sorted(files.items())
    }


def load_module(name: str) -> ModuleType:
    """The module of a benchmark."""
    return importlib.import_module(benchmark_modules()[name])


def declared_benchmarks() -> list[Benchmark]:
    """All benchmarks that declare questions, in the order in which the page shows them."""
    found = [getattr(load_module(name), "BENCHMARK", None) for name in benchmark_modules()]
    return sorted((each for each in found if each is not None), key=_place)


ORDER = (
    "spark",
    "operators",
    "nexmark",
    "keyed",
    "recovery",
    "changes",
    "scaling",
    "object_store",
    "sinks",
    "freshness",
)
"""The questions that readers ask first; the others follow by name."""


def _place(benchmark: Benchmark) -> tuple[int, str]:
    return (ORDER.index(benchmark.name) if benchmark.name in ORDER else len(ORDER)), benchmark.name
