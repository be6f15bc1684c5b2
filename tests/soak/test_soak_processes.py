"""A Spark pipeline on S3 whose driver, workers and server are killed at random, for a given time.

`make soak` runs it for SOAK_MINUTES; KILLS=100 bounds it too, SEEDS=4,5 repeats jobs, and TRACE=1 tells
what was killed when. After every 25 kills a job is finished and compared, and the next one begins.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.support.soak.process_soak import ProcessSoak, SoakReport, expected_output, expected_state
from tests.support.soak.soak_job import ROWS_PER_EPOCH

KILLS_OF_A_JOB = 25


def seeds() -> Iterator[int]:
    given = [int(seed) for seed in os.environ.get("SEEDS", "").split(",") if seed]
    yield from given
    while not given:
        yield random.SystemRandom().randrange(10**6)


def soaked(folder: Path, seed: int, kills: int, seconds: float | None = None) -> SoakReport:
    # Whoever ends the test must not leave its processes behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    folder.mkdir()
    soak = ProcessSoak(folder, seed)
    try:
        return soak.run(kills, seconds)
    except BaseException:
        print(f"failed: {soak.report}", *soak.report.trace, sep="\n")
        raise
    finally:
        soak.close()


@pytest.mark.soak
def test_the_result_is_exact_for_as_long_as_everything_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kills_left = int(os.environ.get("KILLS", "1000000"))
    ends_s = time.monotonic() + float(os.environ.get("SOAK_MINUTES", "10")) * 60
    reports: list[SoakReport] = []
    for seed in seeds():
        left_s = ends_s - time.monotonic()
        if left_s <= 0 or kills_left <= 0:
            break
        reports.append(soaked(tmp_path / str(seed), seed, min(kills_left, KILLS_OF_A_JOB), left_s))
        kills_left -= reports[-1].kills.total()
        with capsys.disabled():
            print(f"\n{reports[-1]}", flush=True)
            if "TRACE" in os.environ:
                print(*reports[-1].trace, sep="\n", flush=True)
    assert reports, "there was no time for a single job"


def test_the_oracles_of_output_and_of_state_agree() -> None:
    newest = {row[0]: row for row in sorted(expected_output(7, epochs=5), key=lambda row: row[1])}
    assert sorted(newest.values()) == expected_state(7, rows=5 * ROWS_PER_EPOCH)
