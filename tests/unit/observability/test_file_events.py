"""What is told of output files, to whom and when, on the path that production takes."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.sinks.event_job import JOB, SCHEMA, SINK, EventJob, rows_of

import lakestate as ls
from lakestate.coordinator.epoch_plan import EpochPlan, EpochResult
from lakestate.errors import FencedError
from lakestate.observability import file_events
from lakestate.observability.file_events import FileEvent, FileEventKind, OutputFiles
from lakestate.sinks import JsonLinesSink, ParquetSink, Roll

OPENED, ROLLED, FINISHED, COMMITTED, SHOWN = FileEventKind
NEVER = Roll(interval=None)


def in_short(events: Sequence[FileEvent]) -> list[tuple[str, str, int, str | None]]:
    return [(event.kind.value, event.partition, event.rows, event.reason) for event in events]


def memory_sink(**settings: Any) -> ParquetSink:
    return ParquetSink(f"memory://{uuid.uuid4().hex}", **{"roll": NEVER, **settings})


class Crash(BaseException):
    """The process is gone."""


def crash(*_: Any) -> None:
    raise Crash


def test_a_file_is_told_of_when_it_is_opened_rolled_finished_and_committed(tmp_path: Path) -> None:
    job = EventJob(ParquetSink(f"file://{tmp_path}", partition_by=["country"], roll=NEVER))
    job.epoch(rows_of("DE", "DE"))
    (opened,) = job.take_told()
    job.epoch(rows_of("DE"))
    assert job.take_told() == []
    progress = job.stop()
    (path,) = (file for file in tmp_path.glob("country=DE/*") if file.is_file())
    name = f"country=DE/{path.name}"
    began = FileEvent(OPENED, JOB, SINK, 0, name, "country=DE", epoch=1, opened_epoch=1)
    assert opened == began
    finished = replace(began, kind=FINISHED, epoch=3, rows=3, size_bytes=path.stat().st_size)
    rolled, *others = told = job.take_told()
    assert rolled == replace(finished, kind=ROLLED, size_bytes=rolled.size_bytes, reason="stop")
    assert others == [finished, replace(finished, kind=COMMITTED)]
    assert [(event.finished_epoch, event.committed_epoch) for event in told] == [
        (None, None),
        (3, None),
        (3, 3),
    ]
    assert progress.file_events == tuple(told)
    assert progress.outputs == {SINK: OutputFiles(0, 1, 1, {"stop": 1}, 3, path.stat().st_size)}


@pytest.mark.parametrize("make", [ParquetSink, JsonLinesSink])
def test_each_reason_for_a_roll_is_told(make: type[ParquetSink]) -> None:
    url = f"memory://{uuid.uuid4().hex}"
    job = EventJob(make(url, partition_by=["country"], roll=Roll(interval="5 minutes"), open_files_max=2))
    job.epoch(rows_of("DE"))
    job.wait(minutes=5)
    job.epoch()
    job.epoch(rows_of("FR", "IT", "UK"))
    job.sink = make(url, partition_by=["country"], roll=Roll(bytes=1, interval=None))
    job.epoch(rows_of("PT"))
    reasons = [(event.partition, event.reason) for event in job.told if event.kind is ROLLED]
    assert reasons[:2] == [("country=DE", "interval"), ("country=FR", "open_files")]
    assert sorted(reasons[2:]) == [("country=IT", "bytes"), ("country=PT", "bytes"), ("country=UK", "bytes")]


def test_files_that_cannot_continue_say_why() -> None:
    job = EventJob(memory_sink(), parallelism=2)
    job.epoch(rows_of("DE"), rows_of("FR"))
    job.parallelism = 1
    job.start()
    job.epoch(rows_of("IT"))
    wider = pa.schema([*SCHEMA, ("more", pa.int64())])
    job.schema = wider
    job.epoch(pa.record_batch({"n": [1], "country": ["UK"], "more": [1]}, schema=wider))
    assert [event.reason for event in job.told if event.kind is ROLLED] == ["rescale", "schema"]
    assert [event.rows for event in job.told if event.kind is COMMITTED] == [1, 2]


def test_a_file_says_which_subtask_finished_it() -> None:
    job = EventJob(memory_sink(), parallelism=3)
    job.epoch(rows_of(), rows_of("DE"), rows_of("FR", "IT"))
    job.stop()
    told = {kind: [(e.subtask_index, e.rows) for e in job.told if e.kind is kind] for kind in FileEventKind}
    assert told == {
        OPENED: [(1, 0), (2, 0)],
        ROLLED: [(1, 1), (2, 2)],
        FINISHED: [(1, 1), (2, 2)],
        COMMITTED: [(1, 1), (2, 2)],
        SHOWN: [],
    }


def test_an_attempt_that_does_not_count_tells_of_nothing() -> None:
    job = EventJob(memory_sink(roll=Roll(interval="0 seconds")))

    def run_twice(plan: EpochPlan) -> EpochResult:
        job.attempt(plan, 0, [rows_of("lost", "lost")])
        return EpochResult((job.attempt(plan, 0, [rows_of("DE")]),))

    job.driver.run_epoch(job.driver.next_epoch(), run_twice)
    assert [(event.kind, event.rows) for event in job.told] == [
        (OPENED, 0),
        (ROLLED, 1),
        (FINISHED, 1),
        (COMMITTED, 1),
    ]
    assert len({event.path for event in job.told}) == 1


def test_a_driver_that_is_fenced_tells_of_nothing() -> None:
    job = EventJob(memory_sink(roll=Roll(interval="0 seconds")))
    fenced = job.driver
    job.start()
    job.driver = fenced
    with pytest.raises(FencedError):
        job.epoch(rows_of("DE"))
    assert job.told == []


def test_after_a_crash_before_the_commit_the_next_start_tells_of_committed_files() -> None:
    job = EventJob(memory_sink(roll=Roll(interval="0 seconds")))
    job.start(commit=crash)
    with pytest.raises(Crash):
        job.epoch(rows_of("DE", "FR"))
    before = job.take_told()
    assert [event.kind for event in before] == [OPENED, ROLLED, FINISHED]
    job.start()
    assert job.take_told() == [replace(before[-1], kind=COMMITTED)]
    job.start()
    assert job.take_told() == []
    progress = job.epoch(rows_of("IT"))
    assert [event.epoch for event in progress.file_events] == [2, 2, 2, 2]


def test_after_a_crash_before_the_marker_committed_files_are_told_of_again() -> None:
    job = EventJob(memory_sink(roll=Roll(interval="0 seconds")))
    job.epoch(rows_of("DE"))
    committed = job.take_told()[-1]
    objects = job.backend.objects(JOB)
    objects.store.delete_many([objects.store_path(objects.paths.commit_marker(objects.list_epochs()[0]))])
    job.start()
    assert job.take_told() == [committed]


def test_a_listener_that_fails_when_a_file_is_committed_is_told_again() -> None:
    job = EventJob(memory_sink(roll=Roll(interval="0 seconds")))

    def fail(events: Sequence[FileEvent]) -> None:
        if any(event.kind is COMMITTED for event in events):
            raise OSError("the listener fails")

    job.driver._tell_listeners = fail
    with pytest.raises(OSError, match="the listener fails"):
        job.epoch(rows_of("DE"))
    job.start()
    assert in_short(job.told) == [("committed", "", 1, None)]


def test_each_event_is_a_record_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    job = EventJob(memory_sink(partition_by=["country"]))
    with caplog.at_level(logging.INFO, logger="lakestate.files"):
        job.epoch(rows_of("DE"))
        job.stop()
    records = [record for record in caplog.records if record.name == "lakestate.files"]
    assert [record.args for record in records] == [(event,) for event in job.told]
    path = job.told[0].path
    assert records[0].getMessage() == f"shop: out opened {path}, epoch 1"
    assert records[1].getMessage().startswith(f"shop: out rolled {path} by stop, 1 rows, ")
    assert records[1].getMessage().endswith(" bytes, epochs 1 to 2")


def test_progress_lists_so_many_events_and_counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakestate.coordinator.epoch_progress.FILE_EVENTS_KEPT", 5)
    job = EventJob(memory_sink(partition_by=["country"], roll=Roll(interval="0 seconds")))
    progress = job.epoch(rows_of(*(f"c{number}" for number in range(4))))
    assert len(job.told) == 16
    assert progress.file_events == tuple(job.told[:5])
    assert replace(progress.outputs[SINK], bytes_committed=0) == OutputFiles(4, 4, 4, {"interval": 4}, 4, 0)
    assert file_events.FILE_EVENTS_KEPT == 1_000


def test_a_table_of_iceberg_tells_of_its_files(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    sink = ls.IcebergSink("shop.orders", catalog=f"file://{tmp_path}", partition_by=["country"], roll=NEVER)
    job = EventJob(sink)
    job.epoch(rows_of("DE", "DE"))
    job.stop()
    assert in_short(job.told) == [
        ("opened", "country=DE", 0, None),
        ("rolled", "country=DE", 2, "stop"),
        ("finished", "country=DE", 2, None),
        ("committed", "country=DE", 2, None),
    ]
    (task,) = sink.load_table().scan().plan_files()
    assert task.file.file_path.endswith(job.told[-1].path)
    assert task.file.file_size_in_bytes == job.told[-1].size_bytes
