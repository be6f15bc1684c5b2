"""What failed attempts leave of an open file: as little as can be, and nothing that may still count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.support.sinks.local_processes import Processes
from tests.support.sinks.sink_files import NEVER, visible_rows
from tests.support.sinks.sink_job import Attempt, SinkJob, expected_rows, numbered_rows

from lakestate.errors import LakestateError
from lakestate.sinks import FileSink, ParquetSink
from lakestate.sinks.files.local.output import OPEN_FOLDER, LocalOutput

ROWS = numbered_rows(200)


def parquet(root: Path) -> FileSink:
    return ParquetSink(f"file://{root}", roll=NEVER, row_group_bytes=2_000)


def hidden_bytes(root: Path) -> int:
    folder = root / OPEN_FOLDER
    return sum(file.stat().st_size for file in folder.iterdir())


@contextmanager
def killed(processes: Processes, job: SinkJob, subtask: int = 0) -> Iterator[Attempt]:
    """An attempt whose process is killed at the end of the block: its locks are free, its files remain."""
    attempt = job.attempt(subtask)
    yield attempt
    processes.end_last()


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(tmp_path, parquet)


@pytest.fixture
def job(processes: Processes) -> SinkJob:
    return SinkJob(processes.open_beside, ROWS, parallelism=1)


@pytest.mark.parametrize("killed_while", ["it writes", "its report is on the way"])
def test_fifty_starts_that_are_killed_cost_no_more_than_one(
    processes: Processes, job: SinkJob, killed_while: str
) -> None:
    job.run_to(10, finish_files=False)
    file_bytes = hidden_bytes(processes.root)
    found: list[int] = []
    for _ in range(50):
        job.restart()
        with killed(processes, job) as attempt:
            attempt.writer.write(attempt.batch)
            if killed_while == "its report is on the way":
                attempt.writer.finish(finish_files=False)
        found.append(hidden_bytes(processes.root))
    # The file, a copy, and what the attempts of one epoch added to each.
    assert max(found) < 2.5 * file_bytes
    job.restart()
    job.run_to(11)
    assert visible_rows(processes.root) == expected_rows(ROWS, 11, 1)
    assert LocalOutput(processes.root).hidden_files() == []


def test_an_attempt_that_is_killed_in_every_epoch_costs_one_copy(processes: Processes, job: SinkJob) -> None:
    job.run_epoch()
    for _ in range(120):
        with killed(processes, job) as attempt:
            attempt.writer.write(attempt.batch)
        # Clean-up beside the stream is not needed for that: it comes every hundred epochs.
        job.publish([job.attempt(0).finish()])
        job.commit()
        assert len(LocalOutput(processes.root).hidden_files()) == 1
    file_bytes = hidden_bytes(processes.root)
    job.run_to(122)
    [visible] = processes.root.glob("*.parquet")
    assert file_bytes <= visible.stat().st_size
    assert visible_rows(processes.root) == expected_rows(ROWS, 122, 1)


def test_a_start_leaves_what_a_fenced_driver_may_still_publish(processes: Processes, job: SinkJob) -> None:
    job.run_to(3, finish_files=False)
    with killed(processes, job) as lost:
        lost.writer.write(lost.batch)
    # It copies the file, writes its manifest, reads the fence, and is then stopped for an hour.
    late = job.attempt(0).finish()
    assert late.commit_data is not None
    job.pending = [late.commit_data]
    job.restart()
    with killed(processes, job) as ours:
        ours.writer.write(ours.batch)
    job.publish([late])
    job.pending = []
    job.commit()
    job.run_to(5)
    assert visible_rows(processes.root) == expected_rows(ROWS, 5, 1)
    job.clean_up()
    assert LocalOutput(processes.root).hidden_files() == []


@pytest.mark.parametrize("wakes_up", ["before the start", "after the start", "after the next epoch"])
@pytest.mark.parametrize("wrote", ["nothing", "its rows"])
def test_an_attempt_of_a_fenced_driver_that_runs_on_harms_nobody(
    processes: Processes, job: SinkJob, wakes_up: str, wrote: str
) -> None:
    job.run_to(2, finish_files=False)
    zombie = job.attempt(0)
    if wrote == "its rows":
        zombie.writer.write(zombie.batch)
    for moment in ("before the start", "after the start", "after the next epoch"):
        if moment == wakes_up:
            # What it writes to may be gone by now.
            with suppress(LakestateError):
                zombie.finish()
        if moment == "before the start":
            job.restart()
        elif moment == "after the start":
            job.run_epoch()
    job.run_to(4)
    job.clean_up()
    assert visible_rows(processes.root) == expected_rows(ROWS, 4, 1)
    assert LocalOutput(processes.root).hidden_files() == []


def test_a_driver_that_overslept_removes_nothing_of_its_successor(processes: Processes, job: SinkJob) -> None:
    job.run_to(2, finish_files=False)
    overslept = SinkJob(processes.open_beside, ROWS, 1, published=job.published, generation=job.generation)
    job.restart()
    job.restart()
    with killed(processes, job) as attempt:
        attempt.writer.write(attempt.batch)
    job.run_epoch()
    # It claimed before the successor did, and only now looks for what others left.
    overslept.restart()
    job.run_to(4)
    assert visible_rows(processes.root) == expected_rows(ROWS, 4, 1)


def test_a_start_removes_nothing_of_another_job(processes: Processes, tmp_path: Path) -> None:
    jobs = [SinkJob(processes.open_beside, ROWS, 1, state_id=each) for each in ("first", "second")]
    for each in jobs:
        each.run_to(2, finish_files=False)
    for _ in range(3):
        jobs[0].restart()
    for each in jobs:
        each.run_to(3)
    assert visible_rows(tmp_path) == sorted(2 * expected_rows(ROWS, 3, 1))
