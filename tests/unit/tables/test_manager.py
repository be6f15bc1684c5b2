"""`TableManager`: what it refuses before it writes, and what it says of an epoch."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.protocol.values import TaskInfo
from lakestate.tables.global_keyed.table import GlobalKeyedTable
from lakestate.tables.manager import SubtaskCheckpoint, TableManager

STATE = GlobalKeyedTable("state", key=str, value=int)
TASK = TaskInfo("job", "counts")


@pytest.fixture
def backend() -> ParquetBackend:
    return ParquetBackend(f"memory://{uuid.uuid4().hex}", cache_bytes=0)


def opened(backend: ParquetBackend, epoch: int | None = None, task: TaskInfo = TASK) -> TableManager:
    return TableManager.load(task, [STATE], backend, epoch)


def checkpoint(
    tables: TableManager, epoch: int, *, min_epoch: int = 1, watermark: Any = None
) -> SubtaskCheckpoint:
    return tables.checkpoint(epoch=epoch, min_epoch=min_epoch, watermark=watermark, then_stop=False)


def publish(backend: ParquetBackend, done: SubtaskCheckpoint) -> None:
    backend.write_checkpoint_metadata("job", done.epoch, [done], watermark_us=done.watermark_us)


def objects_of(backend: ParquetBackend) -> list[str]:
    return [info.path for info in backend.objects("job").store.list("job/")]


class TestEpochs:
    def test_an_epoch_is_checkpointed_once(self, backend: ParquetBackend) -> None:
        tables = opened(backend)
        tables.global_keyed("state").insert("a", 1)
        checkpoint(tables, 1)
        before = objects_of(backend)
        tables.global_keyed("state").insert("a", 2)
        with pytest.raises(InvalidInputError, match="not after the last one") as refused:
            checkpoint(tables, 1)
        assert (refused.value.found, refused.value.expected) == ("epoch 1", "epoch 2 or later")
        assert objects_of(backend) == before

    def test_an_epoch_that_was_refused_keeps_what_was_written(self, backend: ParquetBackend) -> None:
        tables = opened(backend)
        tables.global_keyed("state").insert("a", 1)
        checkpoint(tables, 1)
        tables.global_keyed("state").insert("a", 2)
        with pytest.raises(InvalidInputError):
            checkpoint(tables, 1)
        publish(backend, checkpoint(tables, 2))
        assert opened(backend, 2).global_keyed("state").get("a") == 2

    @pytest.mark.parametrize("epoch", [1, 2, 3])
    def test_no_epoch_up_to_the_restored_one_is_checkpointed_again(
        self, backend: ParquetBackend, epoch: int
    ) -> None:
        publish(backend, checkpoint(opened(backend), 3))
        before = objects_of(backend)
        tables = opened(backend, 3)
        tables.global_keyed("state").insert("a", 1)
        with pytest.raises(InvalidInputError, match="not after the last one"):
            checkpoint(tables, epoch)
        assert objects_of(backend) == before

    def test_a_checkpoint_that_failed_is_tried_again(
        self, backend: ParquetBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tables = opened(backend)
        tables.global_keyed("state").insert("a", 1)
        monkeypatch.setattr(backend, "write_operator_checkpoint_metadata", _fail)
        with pytest.raises(OSError, match="no route"):
            checkpoint(tables, 1)
        monkeypatch.undo()
        publish(backend, checkpoint(tables, 1))
        assert opened(backend, 1).global_keyed("state").get_all() == {"a": 1}

    def test_the_oldest_epoch_to_keep_is_not_after_the_epoch(self, backend: ParquetBackend) -> None:
        tables = opened(backend)
        tables.global_keyed("state").insert("a", 1)
        with pytest.raises(InvalidInputError, match="min_epoch") as refused:
            checkpoint(tables, 4, min_epoch=5)
        assert (refused.value.found, refused.value.expected) == ("min_epoch 5", "at most epoch 4")
        assert objects_of(backend) == []


class TestWatermarks:
    def test_a_watermark_does_not_go_back(self, backend: ParquetBackend) -> None:
        tables = opened(backend)
        checkpoint(tables, 1, watermark=20_000_000)
        before = objects_of(backend)
        tables.global_keyed("state").insert("a", 1)
        with pytest.raises(InvalidInputError, match="watermark goes back") as refused:
            checkpoint(tables, 2, watermark=19_999_999)
        assert "1970-01-01 00:00:19.999999+00:00" in str(refused.value.found)
        assert "1970-01-01 00:00:20+00:00" in str(refused.value.expected)
        assert objects_of(backend) == before

    def test_a_watermark_does_not_go_back_behind_the_restored_epoch(self, backend: ParquetBackend) -> None:
        publish(backend, checkpoint(opened(backend), 1, watermark=20))
        with pytest.raises(InvalidInputError, match="watermark goes back"):
            checkpoint(opened(backend, 1), 2, watermark=19)

    def test_without_a_watermark_the_last_one_stands(self, backend: ParquetBackend) -> None:
        tables = opened(backend)
        checkpoint(tables, 1, watermark=20)
        assert checkpoint(tables, 2).watermark_us == 20
        assert tables.watermark_us == 20

    @pytest.mark.parametrize(
        "watermark",
        [
            datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
            datetime(1970, 1, 1, 2, 0, 1, tzinfo=timezone(timedelta(hours=2))),
        ],
    )
    def test_a_watermark_may_be_a_datetime(self, backend: ParquetBackend, watermark: datetime) -> None:
        done = checkpoint(opened(backend), 1, watermark=watermark)
        publish(backend, done)
        assert done.watermark_us == 1_000_000
        assert backend.load_operator_metadata("job", 1, "counts")[0].watermark_us == 1_000_000

    @pytest.mark.parametrize("watermark", [datetime(1970, 1, 1), 1.5, "now", True, 2**63])
    def test_what_is_no_point_in_time_is_refused_before_anything_is_written(
        self, backend: ParquetBackend, watermark: object
    ) -> None:
        tables = opened(backend)
        tables.global_keyed("state").insert("a", 1)
        with pytest.raises(InvalidInputError, match="point in time"):
            checkpoint(tables, 1, watermark=watermark)
        assert objects_of(backend) == []


class TestOperators:
    def test_an_operator_that_the_epoch_does_not_have_is_refused(self, backend: ParquetBackend) -> None:
        publish(backend, checkpoint(opened(backend), 1))
        with pytest.raises(NotFoundError, match="no such operator") as refused:
            opened(backend, 1, TaskInfo("job", "count"))
        assert (refused.value.object_name, refused.value.found) == ("count", "counts")
        assert str(refused.value.action).startswith("did you mean counts?; pass allow_new_operator=True")

    def test_an_operator_without_a_similar_name_is_told_all_names(self, backend: ParquetBackend) -> None:
        publish(backend, checkpoint(opened(backend), 1))
        with pytest.raises(NotFoundError, match="no such operator") as refused:
            opened(backend, 1, TaskInfo("job", "windows"))
        assert refused.value.found == "counts"
        assert str(refused.value.action).startswith("pass allow_new_operator=True")

    def test_a_new_operator_begins_with_empty_state_if_that_is_asked_for(
        self, backend: ParquetBackend
    ) -> None:
        publish(backend, checkpoint(opened(backend), 1, watermark=7))
        task = TaskInfo("job", "windows")
        tables = TableManager.load(task, [STATE], backend, 1, allow_new_operator=True)
        assert tables.global_keyed("state").get_all() == {}
        assert tables.watermark_us == 7

    def test_asking_for_it_does_not_empty_an_operator_that_has_state(self, backend: ParquetBackend) -> None:
        tables = opened(backend)
        tables.global_keyed("state").insert("a", 1)
        publish(backend, checkpoint(tables, 1))
        again = TableManager.load(TASK, [STATE], backend, 1, allow_new_operator=True)
        assert again.global_keyed("state").get_all() == {"a": 1}


def _fail(*_: object) -> None:
    raise OSError("no route to the store")
