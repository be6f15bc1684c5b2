"""Rows that are staged with an epoch, and delivered once it is published."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

import lakestate as ls
from lakestate.coordinator import publish
from lakestate.errors import CorruptionError, InvalidInputError, StorageUnavailableError
from lakestate.repair.going_back import VisibleOutputError, go_back
from lakestate.sinks.staged import StagedEpoch, StagedPart, StagedSink
from lakestate.tables.staged import table as staged_table
from lakestate.tables.staged.pre_commit import StagedRows
from lakestate.tables.staged.table import StagedTable, StagedView
from lakestate.testing.faults import SimulatedCrash
from lakestate.testing.sink_harness import CrashPoint, SinkHarness

SCHEMA = pa.schema([("n", pa.int64()), ("name", pa.string())])


@dataclass
class Delivered(StagedSink):
    """Remembers what was delivered, by epoch, and compares no epochs."""

    calls: list[tuple[int, list[Any]]] = field(default_factory=list)
    failure: Exception | None = None

    def check(self, schema: pa.Schema, event_time: str | None = None) -> None:
        """Take everything."""

    def deliver(self, epoch: StagedEpoch) -> None:
        rows = [row["n"] for table in epoch.tables() for row in table.to_pylist()]
        self.calls.append((epoch.epoch, rows))
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure


def numbers(*found: int) -> list[dict[str, Any]]:
    return [{"n": n, "name": f"name {n}"} for n in found]


def staged_paths(harness: SinkHarness) -> list[str]:
    return [info.path for info in harness.objects.store.list() if "/staged-" in info.path]


def test_rows_come_subtask_by_subtask_in_the_order_in_which_they_were_written() -> None:
    harness = SinkHarness(Delivered(), SCHEMA, parallelism=3)
    harness.epoch(numbers(5, 4), [], numbers(1, 2, 3))
    harness.epoch([], numbers(7))
    assert harness.sink.calls == [(1, [5, 4, 1, 2, 3]), (2, [7])]


def test_an_epoch_without_rows_delivers_and_stages_nothing() -> None:
    harness = SinkHarness(Delivered(), SCHEMA, parallelism=2)
    harness.epoch()
    assert (harness.sink.calls, staged_paths(harness)) == ([], [])


def test_each_subtask_with_rows_writes_one_object() -> None:
    harness = SinkHarness(Delivered(), SCHEMA, parallelism=3)
    harness.epoch(numbers(1), [], numbers(2))
    assert [path.split("/")[-1].split("-")[1] for path in staged_paths(harness)] == ["0", "2"]


def test_many_rows_are_staged_in_several_objects_and_stay_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_table, "OBJECT_BYTES", 200)
    backend = ls.ParquetBackend("memory://many-staged-rows", cache_bytes=0)
    tables = ls.TableManager.load(ls.TaskInfo("job", "out"), [StagedTable("staged")], backend, None)
    view = tables.view("staged")
    assert isinstance(view, StagedView)
    for batch in pa.Table.from_pylist(numbers(*range(100)), SCHEMA).to_batches(max_chunksize=7):
        view.append(batch, ls.Epoch(1))
    done = tables.checkpoint(1, 1, None, then_stop=False)
    rows = StagedRows.decode(done.commit_data["staged"])
    assert [each.row_count for each in rows.objects] == [14] * 7 + [2]
    part = StagedPart(backend.objects("job"), 0, rows.objects)
    assert [row for table in part.tables() for row in table.to_pylist()] == numbers(*range(100))


def test_rows_are_not_carried_into_the_next_epoch_at_another_parallelism() -> None:
    harness = SinkHarness(Delivered(), SCHEMA, parallelism=2)
    harness.epoch(numbers(1), numbers(2))
    harness.restart(parallelism=3)
    harness.epoch(numbers(3), [], numbers(4))
    assert harness.sink.calls == [(1, [1, 2]), (2, [3, 4])]


def test_an_epoch_that_was_not_published_is_never_delivered() -> None:
    harness = SinkHarness(Delivered(), SCHEMA)
    harness.crash(CrashPoint.BEFORE_PUBLISHING, numbers(1))
    harness.restart()
    harness.epoch(numbers(2))
    assert harness.sink.calls == [(1, [2])]


@pytest.mark.parametrize("point", [CrashPoint.BEFORE_COMMIT, CrashPoint.AFTER_COMMIT])
def test_the_next_driver_delivers_what_one_left(point: CrashPoint) -> None:
    harness = SinkHarness(Delivered(), SCHEMA, parallelism=2)
    harness.crash(point, numbers(1), numbers(2))
    harness.sink.calls.clear()
    harness.restart()
    assert harness.sink.calls == [(1, [1, 2])]


def test_a_target_that_does_not_answer_gets_the_same_epoch_again() -> None:
    harness = SinkHarness(Delivered(failure=StorageUnavailableError("no answer")), SCHEMA)
    with pytest.raises(StorageUnavailableError):
        harness.epoch(numbers(1))
    harness.restart()
    harness.epoch(numbers(2))
    assert harness.sink.calls == [(1, [1]), (1, [1]), (2, [2])]


def test_what_failed_drivers_staged_is_removed_when_the_next_one_starts() -> None:
    harness = SinkHarness(Delivered(), SCHEMA)
    for _ in range(3):
        harness.crash(CrashPoint.BEFORE_PUBLISHING, numbers(1))
        assert len(staged_paths(harness)) == 1
        harness.restart()
        assert staged_paths(harness) == []


def test_what_a_stalled_driver_may_still_publish_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def stall(*_: Any) -> None:
        raise SimulatedCrash("between the manifest and the record")

    harness = SinkHarness(Delivered(), SCHEMA)
    with monkeypatch.context() as patch:
        patch.setattr(publish, "check_fence", stall)
        with pytest.raises(SimulatedCrash):
            harness.epoch(numbers(1))
    staged = staged_paths(harness)
    harness.restart()
    assert (len(staged), staged_paths(harness)) == (1, staged)


def test_delivered_rows_are_collected_with_their_epoch() -> None:
    harness = SinkHarness(Delivered(), SCHEMA, keep_epochs=2)
    for number in range(6):
        harness.epoch(numbers(number))
    assert [path.split("/")[2] for path in staged_paths(harness)] == ["5", "6"]


def test_staged_rows_are_neither_orphans_nor_damage() -> None:
    harness = SinkHarness(Delivered(), SCHEMA, parallelism=2)
    harness.epoch(numbers(1), numbers(2))
    harness.crash(CrashPoint.BEFORE_COMMIT, numbers(3))
    report = ls.verify(harness.backend, "job", sinks={"out": harness.sink})
    assert (report.is_clean, report.orphans, report.findings) == (True, (), ())


def test_a_lost_object_of_an_epoch_that_is_not_delivered_is_named() -> None:
    harness = SinkHarness(Delivered(), SCHEMA)
    harness.crash(CrashPoint.BEFORE_COMMIT, numbers(1))
    (path,) = staged_paths(harness)
    harness.objects.store.delete_many([path])
    (finding,) = ls.verify(harness.backend, "job").findings
    assert (finding.object_name.endswith(path), finding.problem.value) == (True, "is missing")
    with pytest.raises(CorruptionError, match=r"a referenced object is missing.*staged-0"):
        harness.restart()
    assert harness.sink.calls == []


def test_a_damaged_object_is_named_and_not_delivered() -> None:
    harness = SinkHarness(Delivered(), SCHEMA)
    harness.crash(CrashPoint.BEFORE_COMMIT, numbers(1))
    (path,) = staged_paths(harness)
    data = harness.objects.store.get(path).data
    harness.objects.store.put(path, data[:-9] + b"x" + data[-8:])
    with pytest.raises(CorruptionError, match=r"checksum.*staged-0"):
        harness.restart()
    assert harness.sink.calls == []


def test_parts_are_delivered_one_by_one_with_their_subtask() -> None:
    @dataclass
    class ByPart(Delivered):
        def deliver(self, epoch: StagedEpoch) -> None:
            found = epoch.deliver_parts(
                lambda part: (part.subtask_index, part.row_count, sum(len(table) for table in part.tables()))
            )
            self.calls.append((epoch.epoch, found))

    harness = SinkHarness(ByPart(), SCHEMA, parallelism=3)
    harness.epoch(numbers(1, 2), [], numbers(3))
    assert harness.sink.calls == [(1, [(0, 2, 2), (2, 1, 1)])]


def test_a_part_can_be_delivered_by_another_process() -> None:
    @dataclass
    class Travelling(Delivered):
        def deliver(self, epoch: StagedEpoch) -> None:
            twin = pickle.loads(pickle.dumps(epoch))
            self.calls.append((epoch.epoch, [row for part in twin.parts for row in part.objects]))

    harness = SinkHarness(Travelling(), SCHEMA)
    harness.epoch(numbers(1))
    assert [each.row_count for each in harness.sink.calls[0][1]] == [1]


def test_staged_rows_can_be_looked_at_as_a_table_of_the_sink() -> None:
    harness = SinkHarness(Delivered(), SCHEMA, parallelism=2)
    harness.epoch(numbers(1), numbers(2))
    found = ls.read_state(harness.backend.url, "job", "out", "staged")
    assert [json.loads(row["row"]) for row in found.to_pylist()] == numbers(1, 2)


def test_going_back_says_what_was_delivered_and_delivers_it_again() -> None:
    harness = SinkHarness(Delivered(), SCHEMA)
    for number in range(3):
        harness.epoch(numbers(number))
    sinks = {"out": harness.sink}
    with pytest.raises(VisibleOutputError, match="out: commits of epochs 2, 3"):
        go_back(harness.backend, "job", 1, sinks=sinks)
    go_back(harness.backend, "job", 1, sinks=sinks, accept_visible_output=True)
    harness.restart()
    harness.epoch(numbers(7))
    assert harness.sink.calls == [(1, [0]), (2, [1]), (3, [2]), (5, [7])]


def test_a_committer_without_the_job_says_what_is_missing() -> None:
    harness = SinkHarness(Delivered(), SCHEMA)
    harness.epoch(numbers(1))
    permit, _ = harness._commits[0]
    with pytest.raises(InvalidInputError, match="job_committer"):
        harness.sink.committer().commit(permit, [])


def test_a_pre_commit_that_leaves_the_job_is_refused() -> None:
    harmful = StagedRows("", "out", 0, (staged_table.StagedObject("../other/file", 1, 1, 1),)).encode()
    for data in (b"", b"\x81", harmful):
        with pytest.raises(CorruptionError):
            StagedRows.decode(data)
