"""A crash at every step on local files, torn writes included, and attempts that were given up but live."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.sinks.local_processes import Processes, Steps
from tests.support.sinks.sink_job import JOB, Attempt, Rows, SinkJob, expected_rows, numbered_rows

from lakestate.errors import LakestateError
from lakestate.protocol.values import Epoch
from lakestate.sinks.files.local.output import LocalOutput
from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.formats.json_lines.sink import JsonLinesSink
from lakestate.sinks.formats.parquet.sink import ParquetSink
from lakestate.sinks.rolling import Roll

EPOCHS = 4
PARALLELISM = 2
ROWS = numbered_rows(200)
MOMENTS = ("before", "torn", "after")


def quiet_after(epochs: int) -> Rows:
    """Rows in so many epochs, and none in those that follow."""
    none = numbered_rows(0)
    return lambda epoch, subtask: (ROWS if epoch <= epochs else none)(epoch, subtask)


def parquet(root: Path) -> FileSink:
    return ParquetSink(
        f"file://{root}", roll=Roll(bytes="20 KiB", interval=None), kept_row_bytes=2_000, compression="none"
    )


def with_snapshots(root: Path) -> FileSink:
    return ParquetSink(
        f"file://{root}", roll=Roll(interval=None), row_group_bytes=2_000, snapshot_open_files=True
    )


def json_lines(root: Path) -> FileSink:
    return JsonLinesSink(f"file://{root}", roll=Roll(interval=None))


def visible_files(root: Path) -> list[Path]:
    hidden = {".lakestate"}
    return [file for file in root.rglob("*") if file.is_file() and not hidden & set(file.parts)]


def rows_in(file: Path) -> list[int]:
    if file.suffix == ".json":
        return [json.loads(line)["row"] for line in file.read_text().splitlines()]
    return pq.read_table(file, columns=["row"])["row"].to_pylist()


def check_promises(root: Path, rows: Rows = ROWS) -> None:
    found = sorted(number for file in visible_files(root) for number in rows_in(file))
    assert found == expected_rows(rows, EPOCHS, PARALLELISM)
    assert LocalOutput(root).hidden_files() == []
    assert LocalOutput(root).snapshots.paths() == []


STEPS = {"create", "reopen", "append", "sync", "publish"}


SHARE = 2
"""One crash of so many is tried; `make soak` tries all."""


@pytest.mark.slow
@pytest.mark.parametrize("share", [SHARE, pytest.param(1, marks=pytest.mark.soak)], ids=["some", "all"])
@pytest.mark.parametrize(
    ("sink", "rows", "steps"),
    [
        pytest.param(parquet, ROWS, STEPS, id="parquet"),
        pytest.param(with_snapshots, ROWS, {*STEPS, "copy", "publish snapshot"}, id="parquet with snapshots"),
        # Its files are finished without another byte, and what they are copies of is removed.
        pytest.param(json_lines, quiet_after(2), {*STEPS, "copy", "remove"}, id="JSON that ends quietly"),
    ],
)
@pytest.mark.parametrize("lost", ["the attempt", "the driver"])
def test_each_row_is_in_one_file_after_a_crash_at_any_step(
    tmp_path: Path, sink: Callable[[Path], FileSink], rows: Rows, steps: set[str], lost: str, share: int
) -> None:
    processes = Processes(tmp_path / "whole", sink)
    SinkJob(processes.open_sink, rows, PARALLELISM).run_to(EPOCHS)
    check_promises(processes.root, rows)
    assert {*processes.steps.done} == steps
    crashes = [*product(enumerate(processes.steps.done), MOMENTS)]
    for (number, name), moment in crashes[::share]:
        crashing = Processes(tmp_path / f"{number}-{moment}", sink, Steps(number, moment))
        SinkJob(crashing.open_sink, rows, PARALLELISM, restarts=lost == "the driver").run_to(EPOCHS)
        try:
            check_promises(crashing.root, rows)
        except AssertionError as error:
            raise AssertionError(f"crash {moment} step {number}: {name}") from error


WAKE_UPS = ["before publishing", "before the commit", "after the commit", "after clean-up", "an epoch later"]


@pytest.mark.parametrize("wake_up", WAKE_UPS)
@pytest.mark.parametrize("begun_in", [1, 2])
@pytest.mark.parametrize("zombie_wrote", ["nothing", "its rows"])
def test_a_zombie_cannot_change_what_its_successor_wrote(
    tmp_path: Path, begun_in: int, wake_up: str, zombie_wrote: str
) -> None:
    processes = Processes(tmp_path, parquet)
    job = SinkJob(processes.open_beside, ROWS, PARALLELISM)
    job.run_to(begun_in - 1, finish_files=False)
    zombie = job.attempt(0)
    if zombie_wrote == "its rows":
        zombie.writer.write(zombie.batch)
    views = [job.attempt(subtask).finish() for subtask in range(PARALLELISM)]
    steps = {
        "before publishing": partial(job.publish, views),
        "before the commit": job.commit,
        "after the commit": job.clean_up,
        "after clean-up": job.run_epoch,
        "an epoch later": partial(job.run_to, EPOCHS),
    }
    for moment, step in steps.items():
        if moment == wake_up:
            _finish_quietly(zombie)
        step()
    job.clean_up()
    check_promises(tmp_path)


@pytest.mark.parametrize("opens", range(4))
@pytest.mark.parametrize("writes", range(4))
def test_a_file_that_is_finished_without_another_byte_takes_nothing_of_a_zombie(
    tmp_path: Path, opens: int, writes: int
) -> None:
    quiet = quiet_after(1)
    job = SinkJob(Processes(tmp_path, json_lines).open_beside, ROWS, PARALLELISM)
    job.run_epoch()
    zombie = job.attempt(0)
    job.rows = quiet
    views = [job.attempt(subtask).finish(finish_files=True) for subtask in range(PARALLELISM)]
    steps = [partial(job.publish, views), job.commit, job.clean_up, lambda: None]
    for number, step in enumerate(steps):
        # A writer of JSON lines opens its file when it is given rows, and writes at the end.
        with suppress(LakestateError):
            if number == opens:
                zombie.writer.write(zombie.batch)
            if number == max(opens, writes):
                zombie.writer.finish(finish_files=False)
        step()
    job.clean_up()
    check_promises(tmp_path, quiet)


def test_an_attempt_that_had_finished_is_not_harmed_by_one_that_began_later(tmp_path: Path) -> None:
    job = SinkJob(Processes(tmp_path, parquet).open_beside, ROWS, PARALLELISM)
    job.run_epoch()
    views = [job.attempt(subtask).finish() for subtask in range(PARALLELISM)]
    # A speculative copy of a subtask, whose result the driver never takes.
    speculative = job.attempt(0)
    speculative.writer.write(speculative.batch)
    speculative.writer.abandon()
    job.publish(views)
    job.commit()
    job.clean_up()
    job.run_to(EPOCHS)
    check_promises(tmp_path)


def _finish_quietly(zombie: Attempt) -> None:
    # What it writes to may be gone by now.
    with suppress(LakestateError):
        zombie.finish()


def test_rows_that_were_written_twice_are_distinguished(tmp_path: Path) -> None:
    """The check itself: a second copy of a visible file is found."""
    job = SinkJob(Processes(tmp_path, parquet).open_beside, ROWS, PARALLELISM)
    job.run_to(EPOCHS)
    first = visible_files(tmp_path)[0]
    pq.write_table(pa.table(pq.read_table(first)), tmp_path / "copy.parquet")
    with pytest.raises(AssertionError):
        check_promises(tmp_path)


@pytest.mark.parametrize("cleaned", ["beside the next epoch", "by a driver that overslept"])
def test_clean_up_leaves_the_copy_that_a_second_attempt_continues_with(tmp_path: Path, cleaned: str) -> None:
    job = SinkJob(Processes(tmp_path, parquet).open_beside, ROWS, PARALLELISM)
    job.run_epoch()
    before = job.published
    # An attempt that died after it had appended to the files it found open.
    died = job.attempt(0)
    died.finish()
    again = job.attempt(0)
    again.writer.write(again.batch)
    other = job.attempt(1).finish()
    if cleaned == "beside the next epoch":
        job.clean_up()
    again.writer.finish(finish_files=False)
    job.publish([again.view, other])
    job.commit()
    if cleaned == "by a driver that overslept":
        job.open_sink().committer().clean_up(JOB, Epoch(before.epoch), before.pre_commits)
    job.run_to(EPOCHS)
    job.clean_up()
    check_promises(tmp_path)
