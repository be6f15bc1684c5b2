"""One benchmark in a process of its own: its Spark, its memory and its failure are nobody else's.

`python -m benchmarks.core.child NAME SCALE FOLDER PIPE` writes `FOLDER/NAME.json` when all is measured, and
one line to the descriptor PIPE for each thing that it begins.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from pathlib import Path

from benchmarks.core.catalogue import load_module
from benchmarks.core.environment import current_environment
from benchmarks.core.result import BenchmarkResult, store_failed_result, store_result
from benchmarks.core.run import Run, Scale, describe_failure

CONTENDER_FAILED = 3
"""The exit code of a process that measured, but some contender failed where it should not."""
FAILED = 4
"""The exit code of a process that did not measure all, and has stored why."""
DEADLINE_S = 1500
"""No benchmark takes as long: one that does would keep the others from running."""


class OutOfTime(BaseException):
    """A benchmark has not ended in time. Not an `Exception`: it is not a contender that has failed."""


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
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(DEADLINE_S)
    try:
        module.measure(run)
    except (Exception, OutOfTime) as error:  # noqa: BLE001 - what was measured before is not lost
        traceback.print_exc()
        failure = describe_failure(error)
    finally:
        signal.alarm(0)
    seconds = round(time.perf_counter() - started, 1)
    measured = tuple(run.measurements), tuple(run.absences)
    result = BenchmarkResult(name, scale, environment, seconds, *measured, failure)
    if failure:
        store_failed_result(folder, result)
        return FAILED
    store_result(folder, result)
    return CONTENDER_FAILED if any(each.is_failure for each in run.absences) else 0


def _give_up(*_: object) -> None:
    raise OutOfTime(f"it had not ended after {DEADLINE_S // 60} minutes")


def _tell(pipe: int, text: str) -> None:
    print(text, flush=True)
    os.write(pipe, (" ".join(text.split()) + "\n").encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])))
