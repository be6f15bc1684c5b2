"""With `snapshot_open_files`, each committed row can be read by path: once, whatever fails."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.sinks.sink_files import NEVER, no_rows
from tests.support.sinks.sink_job import SinkJob, expected_rows, numbered_rows
from tests.support.sinks.snapshots import readable_rows, rows_of, snapshot_contents, visible_contents

from lakestate.errors import InvalidInputError, LakestateError
from lakestate.sinks import AppendingWriter, FileFormat, FileSink, JsonLinesSink, ParquetSink, Roll
from lakestate.sinks.files import uploads
from lakestate.sinks.files.local.output import OPEN_FOLDER, LocalOutput
from lakestate.sinks.files.sink import FileSink as AnyFileSink

ROWS = numbered_rows(200)
OpenSink = Callable[..., AnyFileSink]
SMALL = {"part_bytes": 1_500, "upload_threads": 0}


def parquet(url: str, *, kept: int = 0, roll: Roll = NEVER, snapshots: bool = True) -> AnyFileSink:
    return ParquetSink(url, roll=roll, kept_row_bytes=kept, snapshot_open_files=snapshots, **SMALL)


def parquet_with_waiting_rows(url: str, **settings: bool) -> AnyFileSink:
    return parquet(url, kept=10**6, **settings)


def json_lines(url: str, *, snapshots: bool = True) -> AnyFileSink:
    return JsonLinesSink(url, roll=NEVER, compression="gzip", snapshot_open_files=snapshots, **SMALL)


FORMATS = pytest.mark.parametrize("open_sink", [parquet, parquet_with_waiting_rows, json_lines])


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(uploads, "INLINE_BYTES_MAX", 500)
    return f"file://{tmp_path}" if request.param == "file" else f"memory://{uuid.uuid4().hex}"


def check_readable(job: SinkJob) -> None:
    assert readable_rows(job.open_sink()) == expected_rows(job.rows, job.published.epoch, job.parallelism)


@FORMATS
def test_every_committed_row_can_be_read_once_in_every_epoch(url: str, open_sink: OpenSink) -> None:
    job = SinkJob(lambda: open_sink(url), ROWS)
    for _ in range(5):
        job.run_epoch()
        check_readable(job)
        assert len(snapshot_contents(job.open_sink())) == job.parallelism, "the newest copy of each file"
    job.run_epoch(finish_files=True)
    check_readable(job)
    assert snapshot_contents(job.open_sink()) == {}


def test_files_that_roll_between_epochs_take_their_copies_along(url: str) -> None:
    job = SinkJob(lambda: parquet(url, roll=Roll(bytes=9_000, interval=None)), ROWS)
    for _ in range(6):
        job.run_epoch()
        check_readable(job)
    assert visible_contents(job.open_sink())


@FORMATS
def test_nothing_of_an_epoch_can_be_read_before_it_is_committed(url: str, open_sink: OpenSink) -> None:
    job = SinkJob(lambda: open_sink(url), ROWS)
    job.run_to(2, finish_files=False)
    views = [job.attempt(subtask).finish() for subtask in range(job.parallelism)]
    check_readable(job)
    job.publish(views)
    job.commit()
    check_readable(job)
    job.commit()
    check_readable(job)


@FORMATS
def test_a_file_that_an_epoch_does_not_touch_keeps_its_copy(url: str, open_sink: OpenSink) -> None:
    job = SinkJob(lambda: open_sink(url), ROWS)
    job.run_epoch()
    before = snapshot_contents(job.open_sink())
    job.rows = lambda epoch, subtask: ROWS(epoch, subtask) if epoch == 1 else no_rows()
    for _ in range(2):
        job.run_epoch()
        assert snapshot_contents(job.open_sink()) == before


@FORMATS
def test_files_that_were_open_before_the_setting_become_readable_in_the_next_epoch(
    url: str, open_sink: OpenSink
) -> None:
    job = SinkJob(lambda: open_sink(url, snapshots=False), ROWS)
    job.run_to(3, finish_files=False)
    assert readable_rows(job.open_sink()) == []
    job.open_sink = lambda: open_sink(url)
    job.rows = lambda epoch, subtask: ROWS(epoch, subtask) if epoch <= 3 else no_rows()
    job.run_epoch()
    check_readable(job)


@FORMATS
def test_without_the_setting_copies_go_when_their_files_are_written_again(
    url: str, open_sink: OpenSink
) -> None:
    job = SinkJob(lambda: open_sink(url), ROWS)
    job.run_to(2, finish_files=False)
    job.open_sink = lambda: open_sink(url, snapshots=False)
    job.run_epoch()
    assert snapshot_contents(job.open_sink()) == {}
    job.run_to(4)
    check_readable(job)


@FORMATS
@pytest.mark.parametrize("lost", ["removed", "cut off"])
def test_a_copy_that_somebody_spoiled_is_replaced_or_its_file_finished(
    url: str, open_sink: OpenSink, lost: str
) -> None:
    job = SinkJob(lambda: open_sink(url), ROWS)
    job.run_to(3, finish_files=False)
    sink = job.open_sink()
    for path, content in snapshot_contents(sink).items():
        if isinstance(sink.output, LocalOutput):
            (sink.output.root / path).write_bytes(content[:9])
            if lost == "removed":
                (sink.output.root / path).unlink()
        else:
            sink.output.put(path, content[:9])
            if lost == "removed":
                sink.output.delete_many([path])
    job.run_epoch()
    check_readable(job)


@FORMATS
def test_after_rescaling_each_file_still_has_one_copy(url: str, open_sink: OpenSink) -> None:
    job = SinkJob(lambda: open_sink(url), ROWS, parallelism=3)
    job.run_to(2, finish_files=False)
    rows = expected_rows(ROWS, 2, 3)
    job.parallelism = 1
    job.run_epoch()
    assert readable_rows(job.open_sink()) == sorted([*rows, *ROWS(3, 0)["row"].to_pylist()])


@FORMATS
@pytest.mark.parametrize("lost", ["gone", "changed"])
def test_a_commit_whose_copies_are_lost_still_counts(
    url: str,
    open_sink: OpenSink,
    lost: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uploads, "INLINE_BYTES_MAX", 0)
    job = SinkJob(lambda: open_sink(url), ROWS, parallelism=1)
    job.run_epoch()
    views = [job.attempt(0).finish()]
    job.publish(views)
    output = job.open_sink().output
    if isinstance(output, LocalOutput):
        [name] = [each for each in output.hidden_files() if "-0000000002-" in each.partition("~")[0]]
        if lost == "gone":
            output.remove(name)
        else:
            (output.root / OPEN_FOLDER / name).write_bytes(b"other bytes")
    else:
        uploads_found = [each.upload for each in output.uploads.list_dangling()]
        [copy] = [each for each in uploads_found if "_snapshot=" in each.path]
        if lost == "gone":
            output.uploads.abort(copy)
        else:
            output.uploads.put_part(copy, 1, b"other bytes")
    with caplog.at_level(logging.WARNING, "lakestate.files"):
        job.commit()
    assert "there is no copy of an open file in this epoch" in caplog.text
    assert snapshot_contents(job.open_sink()) == {}
    job.run_to(4)
    check_readable(job)


@FORMATS
@pytest.mark.parametrize("wakes_up", range(4))
def test_a_zombie_leaves_every_row_readable_once(url: str, open_sink: OpenSink, wakes_up: int) -> None:
    job = SinkJob(lambda: open_sink(url), ROWS)
    job.run_to(2, finish_files=False)
    zombie = job.attempt(0)
    zombie.writer.write(zombie.batch)
    views = [job.attempt(subtask).finish() for subtask in range(job.parallelism)]
    steps = [lambda: job.publish(views), job.commit, job.clean_up, job.run_epoch]
    for number, step in enumerate(steps):
        if number == wakes_up:
            with suppress(LakestateError):
                zombie.writer.finish(finish_files=False)
        step()
    check_readable(job)
    job.run_to(5)
    job.clean_up()
    check_readable(job)
    assert left_over(job) == []


@FORMATS
def test_failed_attempts_leave_no_copies_for_long(url: str, open_sink: OpenSink) -> None:
    job = SinkJob(lambda: open_sink(url), ROWS)
    for _ in range(4):
        job.attempt(0).finish()
        job.run_epoch()
        check_readable(job)
    job.run_to(5)
    job.clean_up()
    assert left_over(job) == []


def left_over(job: SinkJob) -> list[str]:
    output = job.open_sink().output
    if isinstance(output, LocalOutput):
        return [*output.hidden_files(), *output.snapshots.paths()]
    dangling = [each.upload.path for each in output.uploads.list_dangling()]
    return [*dangling, *(info.path for info in output.list("_lakestate/"))]


def test_a_local_attempt_that_is_killed_in_every_epoch_leaves_one_file_and_one_copy(tmp_path: Path) -> None:
    job = SinkJob(lambda: parquet(f"file://{tmp_path}"), ROWS, parallelism=1)
    job.run_epoch()
    for _ in range(20):
        job.attempt(0).finish()
        job.publish([job.attempt(0).finish()])
        job.commit()
        output = LocalOutput(tmp_path)
        assert (len(output.hidden_files()), len(output.snapshots.paths())) == (1, 1)
    check_readable(job)


def test_partitions_are_in_the_path_of_a_copy(tmp_path: Path) -> None:
    sink = ParquetSink(f"file://{tmp_path}", partition_by=["country"], roll=NEVER, snapshot_open_files=True)
    job = SinkJob(lambda: sink, ROWS, parallelism=1)
    job.run_epoch()
    folder = tmp_path / ".lakestate/snapshots"
    found = {file.parent.relative_to(folder): rows_of(file.read_bytes()) for file in folder.rglob("_snap*")}
    rows = ROWS(1, 0).to_pylist()
    assert found == {
        Path(f"country={country}"): [row["row"] for row in rows if row["country"] == country]
        for country in ("DE", "FR")
    }
    job.run_epoch(finish_files=True)
    assert not folder.exists()


def test_a_folder_of_copies_that_became_a_link_is_refused_before_it_is_published(tmp_path: Path) -> None:
    root = tmp_path / "out"
    (tmp_path / "outside").mkdir()
    (root / ".lakestate").mkdir(parents=True)
    (root / ".lakestate/snapshots").symlink_to(tmp_path / "outside")
    job = SinkJob(lambda: parquet(f"file://{root}"), ROWS, parallelism=1)
    with pytest.raises(InvalidInputError) as refused:
        job.attempt(0).finish()
    assert refused.value.object_name == str(root / ".lakestate/snapshots")


def test_a_format_that_cannot_end_an_open_file_is_refused_at_once() -> None:
    class Numbers(AppendingWriter):
        trailing_bytes_for_checkpoint = property()  # type: ignore[assignment]

        def encode_rows(self, batch: object) -> bytes:
            return b""

    class Plain(FileFormat):
        name = "plain_numbers"
        extension = "txt"  # type: ignore[assignment]

        def open_writer(self, schema, state):  # type: ignore[no-untyped-def]
            return Numbers(schema, state)

    sink = FileSink("file:///data/out", format=Plain(), snapshot_open_files=True)
    with pytest.raises(InvalidInputError, match="found Numbers without trailing_bytes_for_checkpoint"):
        sink.check(ROWS(1, 0).schema)
