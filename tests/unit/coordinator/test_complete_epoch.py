"""What an epoch says of its subtasks when it is published without a driver."""

from __future__ import annotations

import uuid

import pytest

from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.errors import InvalidInputError
from lakestate.protocol.metadata import CompletionStatus, SubtaskMetadata
from lakestate.protocol.values import Epoch, TaskInfo
from lakestate.tables.global_keyed.table import GlobalKeyedTable
from lakestate.tables.manager import SubtaskCheckpoint, TableManager

TABLE = GlobalKeyedTable("counts", key=str, value=int)


class Job:
    """Two subtasks of one operator."""

    def __init__(self) -> None:
        self.backend = ParquetBackend(f"memory://{uuid.uuid4().hex}", cache_bytes=0)
        self.tables = [
            TableManager.load(TaskInfo("job", "op", index, 2), [TABLE], self.backend, None)
            for index in range(2)
        ]

    def checkpoint(
        self, epoch: int, watermarks: tuple[int | None, int | None], stops: tuple[bool, bool] = (False, False)
    ) -> list[SubtaskCheckpoint]:
        return [
            tables.checkpoint(epoch=epoch, min_epoch=1, watermark=watermark, then_stop=then_stop)
            for tables, watermark, then_stop in zip(self.tables, watermarks, stops, strict=True)
        ]

    def metadata(self, epoch: int) -> list[SubtaskMetadata]:
        found = self.backend.load_operator_metadata("job", epoch, "op")
        return [found[index] for index in sorted(found)]

    def metadata_objects(self) -> list[str]:
        listed = self.backend.objects("job").store.list("job/")
        return [info.path for info in listed if info.path.endswith(".metadata")]


@pytest.fixture
def job() -> Job:
    return Job()


def test_an_epoch_after_which_all_subtasks_stop_is_final(job: Job) -> None:
    job.backend.write_checkpoint_metadata("job", 1, job.checkpoint(1, (None, None)))
    job.backend.write_checkpoint_metadata("job", 2, job.checkpoint(2, (None, None), (True, True)))
    statuses = [job.backend.load_checkpoint_metadata("job", epoch).status for epoch in (1, 2)]
    assert statuses == [CompletionStatus.COMPLETE, CompletionStatus.FINAL]
    assert [found.then_stop for found in job.metadata(2)] == [True, True]


def test_an_epoch_after_which_only_some_subtasks_stop_is_refused(job: Job) -> None:
    done = job.checkpoint(1, (None, None), (True, False))
    with pytest.raises(InvalidInputError, match="only some subtasks stop") as refused:
        job.backend.write_checkpoint_metadata("job", 1, done)
    assert refused.value.found == "then_stop=False in 1 of 2: op[1]"
    assert job.backend.newest_checkpoint("job") is None


def test_the_metadata_of_an_epoch_without_changes_is_that_of_the_epoch(job: Job) -> None:
    job.tables[0].global_keyed("counts").insert("a", 1)
    first = job.backend.write_checkpoint_metadata("job", 1, job.checkpoint(1, (10, 10)))
    stored = job.metadata_objects()
    job.backend.claim("job")
    second = job.backend.write_checkpoint_metadata("job", 2, job.checkpoint(2, (30, 40), (True, True)))
    assert job.metadata_objects() == stored
    wrote = job.metadata(1)
    assert [(each.epoch, each.watermark_us, each.then_stop) for each in wrote] == [(1, 10, False)] * 2
    assert wrote[0].bytes_written > 0
    found = job.metadata(2)
    assert [(each.epoch, each.watermark_us, each.then_stop) for each in found] == [
        (2, 30, True),
        (2, 40, True),
    ]
    assert [each.bytes_written for each in found] == [0, 0]
    assert [each.generation for each in found] == [second.generation] * 2
    assert second.generation == first.generation.next()
    manifest = job.backend.load_checkpoint_metadata("job", 2)
    assert {(each.started_ms, each.finished_ms) for each in found} == {
        (manifest.started_ms, manifest.finished_ms)
    }
    assert [each.tables for each in found] == [each.tables for each in wrote]


def test_a_subtask_without_a_watermark_has_none(job: Job) -> None:
    job.backend.write_checkpoint_metadata("job", 1, job.checkpoint(1, (None, None)))
    job.backend.write_checkpoint_metadata("job", 2, job.checkpoint(2, (None, 40)))
    assert [each.watermark_us for each in job.metadata(2)] == [None, 40]
    assert job.backend.load_checkpoint_metadata("job", 2).watermark_us is None


def test_the_watermark_of_an_epoch_is_the_least_of_its_subtasks(job: Job) -> None:
    job.backend.write_checkpoint_metadata("job", 1, job.checkpoint(1, (30, 20)))
    assert job.backend.load_checkpoint_metadata("job", 1).watermark_us == 20


@pytest.mark.parametrize("given_us", [19, 21])
def test_another_watermark_than_that_of_its_subtasks_is_refused(job: Job, given_us: int) -> None:
    done = job.checkpoint(1, (30, 20))
    with pytest.raises(InvalidInputError, match="not that of its subtasks"):
        job.backend.write_checkpoint_metadata("job", 1, done, watermark_us=given_us)
    assert job.backend.newest_checkpoint("job") is None


def test_the_oldest_epoch_to_keep_is_not_after_the_published_one(job: Job) -> None:
    done = job.checkpoint(1, (None, None))
    with pytest.raises(InvalidInputError, match="min_epoch") as refused:
        job.backend.write_checkpoint_metadata("job", 1, done, min_epoch=Epoch(2))
    assert (refused.value.found, refused.value.expected) == ("min_epoch 2", "at most epoch 1")
    assert job.backend.newest_checkpoint("job") is None
