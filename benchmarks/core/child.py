"""One benchmark in a process of its own: its Spark, its memory and its failure are nobody else's.

`python -m benchmarks.core.child NAME SCALE FOLDER PIPE` writes `FOLDER/NAME.json` when all is measured, and
one line to the descriptor PIPE for each thing that it begins.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from benchmarks.core.catalogue import load_module
from benchmarks.core.environment import current_environment
from benchmarks.core.result import BenchmarkResult, store_result
from benchmarks.core.run import Run, Scale

CONTENDER_FAILED = 3
"""The exit code of a process that measured, but some contender failed where it should not."""


def main(name: str, scale: str, folder: Path, pipe: int) -> int:
    """Measure and store the result."""
    module = load_module(name)
    if not hasattr(module, "BENCHMARK"):
        module.main()
        return 0
    run = Run(module.BENCHMARK, Scale(scale), say=lambda text: _tell(pipe, text))
    environment = current_environment()
    started = time.perf_counter()
    module.measure(run)
    seconds = time.perf_counter() - started
    result = BenchmarkResult(
        name, scale, environment, round(seconds, 1), tuple(run.measurements), tuple(run.absences)
    )
    store_result(folder, result)
    return CONTENDER_FAILED if any(each.is_failure for each in run.absences) else 0


def _tell(pipe: int, text: str) -> None:
    print(text, flush=True)
    os.write(pipe, (" ".join(text.split()) + "\n").encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])))
