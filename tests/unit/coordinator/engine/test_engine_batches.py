"""Batches of the engine and epochs: their numbers, and what an epoch without a batch stores."""

from __future__ import annotations

import pytest
from tests.support.spark.stored_files import store_files

from lakestate.codec.engine_files import OffsetLog, SparkFiles
from lakestate.coordinator.engine.batches import (
    BatchNumbers,
    EngineFiles,
    engine_files_without_batch,
    require_position,
)
from lakestate.coordinator.epoch_plan import LogUpdate
from lakestate.errors import IncompatibleStateError
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import Manifest, NamedBytes, SourceOffsets
from lakestate.protocol.values import Epoch, Generation
from lakestate.storage import open_store

QUERY = "8d1f2a8e-6f6e-4a55-9a39-5b1f64a3b2c1"


def offsets(read: int) -> OffsetLog:
    return OffsetLog("v1", '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}', (str(read),))


def manifest(epoch: int, files: tuple[NamedBytes, ...] = (), *sources: SourceOffsets) -> Manifest:
    return Manifest(
        "job",
        Epoch(epoch),
        Generation(1),
        None,
        started_ms=0,
        finished_ms=0,
        min_epoch=Epoch(1),
        engine_files=files,
        sources=sources,
    )


def after_batch(batch: int, epoch: int) -> Manifest:
    """The epoch of a batch, with the numbers that Spark gave to it."""
    before = offsets(batch * 10) if batch else None
    files = SparkFiles(Epoch.of_batch(batch), QUERY, offsets(batch * 10 + 10), before, ())
    return manifest(epoch, files.renumber(Epoch(epoch)).encode())


@pytest.mark.parametrize(
    ("newest", "batch", "epoch"),
    [
        pytest.param(None, 0, 1, id="a new job"),
        pytest.param(after_batch(0, 1), 1, 2, id="in step"),
        pytest.param(after_batch(0, 3), 3, 4, id="the first batch came late"),
        pytest.param(after_batch(4, 9), 9, 10, id="after epochs without a batch"),
        pytest.param(manifest(2), 0, 3, id="before the first batch"),
    ],
)
def test_the_first_batch_after_a_launch_becomes_the_epoch_after_the_newest(
    newest: Manifest | None, batch: int, epoch: int
) -> None:
    numbers = BatchNumbers.after(newest)
    assert (numbers.epoch_of(batch), numbers.batch_of(Epoch(epoch))) == (epoch, batch)


def test_each_epoch_without_a_batch_moves_later_batches_by_one() -> None:
    numbers = BatchNumbers.after(after_batch(4, 9)).skip_epoch().skip_epoch()
    assert (numbers.epoch_of(9), numbers.batch_of(Epoch(12))) == (12, 9)


def test_files_of_a_batch_bear_the_number_of_its_epoch() -> None:
    files = {file.name: file.data for file in after_batch(1, 5).engine_files}
    assert sorted(files) == ["commits/3", "commits/4", "metadata", "offsets/3", "offsets/4"]
    assert (files["offsets/3"], files["offsets/4"]) == (offsets(10).encode(), offsets(20).encode())


def test_spark_finds_offsets_before_those_of_its_first_batch_if_an_epoch_came_before_it() -> None:
    files = {file.name: file.data for file in after_batch(0, 2).engine_files}
    assert sorted(files) == ["commits/0", "commits/1", "metadata", "offsets/0", "offsets/1"]
    assert files["offsets/0"] == files["offsets/1"] == offsets(10).encode()


def test_an_epoch_without_a_batch_repeats_the_offsets_of_its_parent() -> None:
    files = engine_files_without_batch(after_batch(1, 5), Epoch(6))
    parsed = SparkFiles.parse(files.files, Epoch(6))
    assert (parsed.offsets, parsed.before, parsed.query_id) == (offsets(20), offsets(20), QUERY)


def test_logs_that_grow_are_carried_by_reference() -> None:
    line = '{"logOffset":0}'
    position = OffsetLog("v1", offsets(0).metadata, (line,))
    log = b'v1\n{"path":"file:///in/a","timestamp":1,"batchId":0}'
    files = SparkFiles(Epoch(1), QUERY, position, None, ()).encode()
    job = JobObjects(open_store("memory://engine-batches"), "job")
    stored = store_files(
        EngineFiles(files, (LogUpdate("sources/0/0", (log.removeprefix(b"v1"),)),)), Epoch(1), job
    )
    carried = engine_files_without_batch(stored, Epoch(2))
    assert [(update.name, update.parts) for update in carried.logs] == [
        (kept.name, kept.pieces) for kept in stored.engine_logs
    ]


def test_before_the_first_batch_there_is_nothing_to_repeat() -> None:
    assert engine_files_without_batch(None, Epoch(1)) == EngineFiles(())
    assert engine_files_without_batch(manifest(1), Epoch(2)) == EngineFiles(())


class TestThePositionOfAnEpoch:
    @pytest.mark.parametrize(
        "newest",
        [
            pytest.param(after_batch(4, 9), id="offsets"),
            pytest.param(manifest(2, (), SourceOffsets("rows", "", None)), id="nothing read yet"),
        ],
    )
    def test_an_epoch_with_offsets_or_without_rows_can_be_continued(self, newest: Manifest) -> None:
        require_position(newest)

    @pytest.mark.parametrize(
        ("newest", "found"),
        [
            pytest.param(manifest(2, (), SourceOffsets("rows", "7", None)), "no file of Spark", id="lost"),
            pytest.param(manifest(2, (NamedBytes("metadata", b"{}"),)), "metadata", id="other files"),
        ],
    )
    def test_one_that_has_read_rows_and_lost_its_offsets_cannot(self, newest: Manifest, found: str) -> None:
        with pytest.raises(IncompatibleStateError, match="no offsets of Spark to continue from") as refused:
            require_position(newest)
        assert refused.value.found == found
