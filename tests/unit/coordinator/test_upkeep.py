"""Upkeep beside the stream: clean-up, retention and the merges of operators fail each for itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.jobs.table_job import EAGER

import lakestate as ls
from lakestate.coordinator.compact import compact_stored
from lakestate.coordinator.epoch_plan import encode_commit_parts
from lakestate.coordinator.upkeep import CLEAN_UP_EPOCHS, Upkeep
from lakestate.errors import FencedError, InvalidInputError
from lakestate.protocol.metadata import Manifest, SinkPreCommit, SubtaskMetadata
from lakestate.protocol.retention import RetentionPolicy
from lakestate.protocol.values import Epoch, Generation, TaskInfo
from lakestate.runtime.sink_step import sink_clean_up
from lakestate.storage.parallel import InlineExecutor
from lakestate.tables.contract import CompactedFiles

VALUES = ls.GlobalKeyedTable("values", key=str, value=int)
OPERATORS = ("a", "b", "c")


class Job:
    """Three operators with a subtask each, and upkeep after every epoch."""

    def __init__(self, folder: Any) -> None:
        self.backend = ls.ParquetBackend(f"file://{folder}/store", cache_dir=folder / "cache")
        self.objects = self.backend.objects("job")
        self.claim = self.backend.claim("job")
        self.broken_operators: dict[str, Exception] = {}
        self.broken_clean_up: Exception | None = None
        self.cleaned: list[int] = []
        self.merged: list[str] = []
        self.epoch = 0
        self.upkeep = Upkeep(
            self.objects,
            self.claim,
            self.backend.ambient,
            retention=RetentionPolicy(2),
            compaction=EAGER,
            compactor=self._compact,
            clean_up=self._clean_up,
            executor=InlineExecutor(),
        )

    def _clean_up(self, manifest: Manifest) -> None:
        self.cleaned.append(int(manifest.epoch))
        if self.broken_clean_up is not None:
            raise self.broken_clean_up

    def _compact(
        self, manifest: Manifest, stored: Sequence[SubtaskMetadata], generation: Generation
    ) -> Mapping[int, tuple[CompactedFiles, ...]]:
        operator_id = stored[0].operator_id
        if operator_id in self.broken_operators:
            raise self.broken_operators[operator_id]
        self.merged.append(operator_id)
        done = compact_stored(self.backend, manifest, stored, generation, EAGER)
        return {0: done.of_subtask(0)}

    def run(self, count: int) -> None:
        for _ in range(count):
            parent, self.epoch = self.epoch, self.epoch + 1
            merges = self.upkeep.merges()
            done = [self._checkpoint(name, parent, merges.get(name, {}).get(0, ())) for name in OPERATORS]
            self.backend.write_checkpoint_metadata("job", self.epoch, done)
            self.upkeep.after_epoch(self.backend.load_checkpoint_metadata("job", self.epoch), merges)

    def _checkpoint(self, operator_id: str, parent: int, merges: tuple[CompactedFiles, ...]) -> Any:
        task = TaskInfo("job", operator_id)
        manager = ls.TableManager.load(task, [VALUES], self.backend, restore_from=parent or None)
        manager.apply_compacted(merges)
        manager.global_keyed("values").insert(f"key {self.epoch}", self.epoch)
        return manager.checkpoint(self.epoch, 1, None, False)

    def file_counts(self) -> list[int]:
        newest = self.backend.load_checkpoint_metadata("job")
        return [entry.subtasks[0].summary.file_count for entry in newest.operators]

    def epochs_kept(self) -> int:
        return len(self.objects.list_epochs())


@pytest.fixture
def job(tmp_path: Any) -> Job:
    return Job(tmp_path)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.WARNING, "lakestate.upkeep"):
        yield caplog


def test_a_clean_up_that_is_refused_keeps_nothing_else_from_happening(
    job: Job, told: pytest.LogCaptureFixture
) -> None:
    job.broken_clean_up = InvalidInputError("the store refused the request", found="403 AccessDenied")
    job.run(12)
    assert job.epochs_kept() <= 4
    assert max(job.file_counts()) <= 4
    assert "clean-up of the sinks of job job failed and will be tried again: the store refused" in told.text
    assert set(job.upkeep.take_failures()) == {"clean_up"}


def test_a_clean_up_that_failed_is_tried_again_and_then_now_and_then(job: Job) -> None:
    def after(*epochs: int) -> None:
        for epoch in epochs:
            job.upkeep.after_epoch(
                Manifest("job", Epoch(epoch), job.claim.generation, None, 0, 0, Epoch(1)), {}
            )

    job.run(1)
    job.broken_clean_up = InvalidInputError("refused")
    after(CLEAN_UP_EPOCHS, CLEAN_UP_EPOCHS + 1, CLEAN_UP_EPOCHS + 2)
    job.broken_clean_up = None
    after(CLEAN_UP_EPOCHS + 3, CLEAN_UP_EPOCHS + 4, 2 * CLEAN_UP_EPOCHS + 2, 2 * CLEAN_UP_EPOCHS + 3)
    assert job.cleaned == [1, 101, 102, 103, 203]


def test_a_damaged_tag_stops_retention_alone_and_is_named(job: Job, told: pytest.LogCaptureFixture) -> None:
    job.run(1)
    job.objects.store.put("job/tags/x.json", b"{}")
    job.run(11)
    assert job.epochs_kept() == 12
    assert max(job.file_counts()) <= 4
    assert "retention of job job failed and will be tried again: nothing is deleted: " in told.text
    assert "job/tags/x.json" in told.text
    assert set(job.upkeep.take_failures()) == {"retention"}
    job.objects.store.delete_many(["job/tags/x.json"])
    job.run(4)
    assert job.epochs_kept() <= 4
    assert job.upkeep.take_failures() == {}


def test_merges_of_other_operators_are_kept_if_one_fails(job: Job, told: pytest.LogCaptureFixture) -> None:
    job.broken_operators = {"b": RuntimeError("the executor is gone")}
    job.run(12)
    a, b, c = job.file_counts()
    assert max(a, c) <= 4
    assert b == 12
    assert job.epochs_kept() <= 4
    assert (
        "compaction of operator b of job job failed and will be tried again: the executor is gone"
        in told.text
    )
    assert set(job.upkeep.take_failures()) == {"compaction"}


def test_failures_are_counted_until_they_are_taken(job: Job) -> None:
    job.broken_clean_up = InvalidInputError("refused")
    job.run(3)
    assert job.upkeep.take_failures() == {"clean_up": 3}
    assert job.upkeep.take_failures() == {}


def test_a_fenced_driver_gives_up_all_of_its_upkeep(job: Job, told: pytest.LogCaptureFixture) -> None:
    job.broken_operators = {"a": FencedError("another driver has taken over this job")}
    job.run(6)
    assert job.merged == []
    assert told.text.count("upkeep of job job has ended: another driver has taken over this job") == 1


def test_a_sink_that_cannot_be_cleared_does_not_keep_the_others_from_it() -> None:
    cleared: list[str] = []

    class Committer:
        def __init__(self, name: str) -> None:
            self._name = name

        def clean_up(self, job_id: str, epoch: Epoch, pre_commits: Any) -> None:
            cleared.append(self._name)
            if self._name == "first":
                raise InvalidInputError("not allowed to list uploads", object_name=self._name)

    class OneSink:
        def __init__(self, name: str) -> None:
            self._name = name

        def committer(self) -> Committer:
            return Committer(self._name)

    names = ("first", "second")
    manifest: Any = SimpleNamespace(
        epoch=Epoch(1), sinks=[SinkPreCommit(name, encode_commit_parts([])) for name in names]
    )
    sinks: dict[str, Any] = {name: OneSink(name) for name in names}
    with pytest.raises(InvalidInputError, match="not allowed to list uploads: first"):
        sink_clean_up(sinks, "job")(manifest)
    assert cleared == ["first", "second"]
