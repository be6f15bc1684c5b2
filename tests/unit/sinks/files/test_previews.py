"""Small files that show rows of uploads: a fault at every call of the store, and every row is seen once."""

from __future__ import annotations

import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.sinks.sink_job import SinkJob, expected_rows, numbered_rows, permit_for

from lakestate.errors import LakestateError
from lakestate.sinks.files.pre_commit import PreCommit
from lakestate.sinks.formats.parquet.sink import ParquetSink
from lakestate.sinks.rolling import Roll
from lakestate.storage import ObjectStore, open_store
from lakestate.testing.faults import Fault, FaultyStore, Hook, faults_at, no_faults

EPOCHS = 4
ROWS = numbered_rows(100)


class TableFiles(ParquetSink):
    """Files whose readers see what a table lists."""

    can_replace_files: ClassVar[bool] = True


@dataclass
class ListedFiles(SinkJob):
    """A table in its simplest form: a list of files, changed once by each epoch."""

    store: ObjectStore = field(kw_only=True)
    listed: set[str] = field(default_factory=set)
    done: set[int] = field(default_factory=set)

    def commit(self) -> None:
        super().commit()
        if self.published.epoch in self.done:
            return
        finished = [file for data in self.published.pre_commits for file in PreCommit.decode(data).finished]
        self.listed |= {file.path for file in finished if not file.replaces}
        for file in finished:
            assert {*file.replaces} <= self.listed, "only what readers see is replaced"
            assert sum(self._row_count(path) for path in file.replaces) in (0, file.statistics.row_count)
            self.listed = (self.listed - {*file.replaces}) | ({file.path} if file.replaces else set())
        self.done.add(self.published.epoch)
        published = expected_rows(ROWS, self.published.epoch, self.parallelism)
        assert not Counter(self.visible_rows()) - Counter(published), "a row is seen twice, or too early"

    def visible_rows(self) -> list[int]:
        tables = [self._read(path) for path in sorted(self.listed)]
        return sorted(number for table in tables for number in table["row"].to_pylist())

    def _row_count(self, path: str) -> int:
        return int(self._read(path).num_rows)

    def _read(self, path: str) -> pa.Table:
        return pq.read_table(pa.BufferReader(self.store.get(path).data), columns=["row"])


@dataclass
class Processes:
    """Sinks on one store, each of a process of its own; the calls of all are counted through."""

    visible: str
    hook: Hook = no_faults
    calls: list[str] = field(default_factory=list)
    inner: ObjectStore = field(default_factory=lambda: open_store(f"memory://{uuid.uuid4().hex}"))

    def job(self) -> ListedFiles:
        return ListedFiles(self.open_sink, ROWS, store=self.inner)

    def open_sink(self) -> TableFiles:
        sink = TableFiles(
            self.inner.url,
            roll=Roll(bytes="7 KiB", interval=None, visible=self.visible),
            kept_row_bytes=1_000,
            part_bytes=3_000,
            upload_threads=0,
            compression="none",
        )
        sink.__dict__["store"] = FaultyStore(self.inner, self._counted)
        return sink

    def _counted(self, operation: object, path: str) -> Fault:
        self.calls.append(f"{getattr(operation, 'value', operation)} {path}")
        return self.hook(operation, path)  # type: ignore[arg-type]


def check_promises(job: ListedFiles) -> None:
    assert job.visible_rows() == expected_rows(ROWS, EPOCHS, 2)
    assert list(job.store.uploads.list_dangling()) == [], "an upload dangles"
    assert [info.path for info in job.store.list() if info.path.startswith("_")] == []


# The clock advances by a millisecond at each reading: 8 of them are more than an epoch takes.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("visible", "fault"),
    [
        ("0 seconds", Fault.CRASH_AFTER),
        ("8 milliseconds", Fault.CRASH_AFTER),
        ("8 milliseconds", Fault.CRASH_BEFORE),
        ("8 milliseconds", Fault.ANSWER_LOST),
    ],
)
def test_each_row_is_seen_once_after_a_fault_at_any_call(visible: str, fault: Fault) -> None:
    whole = Processes(visible)
    job = whole.job()
    job.run_to(EPOCHS)
    check_promises(job)
    assert len(job.listed) < 8
    for number, call in enumerate(whole.calls):
        processes = Processes(visible, faults_at({number: fault}))
        job = processes.job()
        job.run_to(EPOCHS)
        try:
            check_promises(job)
        except AssertionError as error:
            raise AssertionError(f"{fault.value} at call {number}: {call}") from error


def test_all_rows_of_committed_epochs_are_seen_at_once() -> None:
    job = Processes("0 seconds").job()
    for epoch in range(1, EPOCHS + 1):
        job.run_epoch()
        assert job.visible_rows() == expected_rows(ROWS, epoch, 2)


def test_a_zombie_attempt_changes_nothing() -> None:
    job = Processes("0 seconds").job()
    job.run_to(2, finish_files=False)
    zombie = job.attempt(0)
    job.run_to(3, finish_files=False)
    # What it writes to may be gone by now.
    with suppress(LakestateError):
        zombie.finish(finish_files=True)
    job.run_to(EPOCHS)
    check_promises(job)


def test_an_epoch_is_committed_again_without_effect() -> None:
    job = Processes("0 seconds").job()
    job.run_to(3)
    seen = job.visible_rows()
    job.open_sink().committer().commit(permit_for(3), job.published.pre_commits)
    assert job.visible_rows() == seen
