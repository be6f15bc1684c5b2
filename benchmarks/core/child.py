"""One benchmark in a process of its own: its Spark, its memory and its failure are nobody else's.

`python -m benchmarks.core.child NAME SCALE FOLDER PIPE` writes `FOLDER/NAME.json` when all is measured, and
one line to the descriptor PIPE for each thing that it begins.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path

from benchmarks.core.catalogue import load_module
from benchmarks.core.environment import current_environment
from benchmarks.core.result import BenchmarkResult, load_result, store_result
from benchmarks.core.run import Run, Scale, describe_failure

FAILED = 1
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
    failure = ""
    try:
        module.measure(run)
    except Exception as error:  # noqa: BLE001 - what was measured before is not lost
        traceback.print_exc()
        failure = describe_failure(error)
    seconds = round(time.perf_counter() - started, 1)
    measured = tuple(run.measurements), tuple(run.absences)
    result = BenchmarkResult(name, scale, environment, seconds, *measured, failure)
    if not failure or _is_better_than_nothing(folder, result):
        store_result(folder, result)
    if failure:
        return FAILED
    return CONTENDER_FAILED if any(each.is_failure for each in run.absences) else 0


def _is_better_than_nothing(folder: Path, result: BenchmarkResult) -> bool:
    """Part of a result does not replace a whole one."""
    last = load_result(folder, result.benchmark)
    return bool(result.measurements) and (last is None or bool(last.failure) or last.scale != result.scale)


def _tell(pipe: int, text: str) -> None:
    print(text, flush=True)
    os.write(pipe, (" ".join(text.split()) + "\n").encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])))
