"""A query from start to end: triggers, stopping, failing, and continuing after another driver's epoch."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.spark.pipelines import (
    read_output,
    read_stream,
    run_available,
    wait_for,
    write_input,
)
from tests.support.spark.query_job import JOB, Job
from tests.support.spark.totals import Totals

import lakestate as ls
from lakestate.codec.engine_files import METADATA
from lakestate.errors import NotFoundError
from lakestate.observability.time_parts import (
    BUILD,
    ENCODE,
    INPUT,
    LOOKUP,
    OPERATOR,
    SCAN,
    TRIGGER,
    UPLOAD,
    WRITE,
)
from lakestate.protocol.metadata import CompletionStatus, NamedBytes
from lakestate.sinks.files.committer import FileCommitter
from lakestate.spark import query as query_module
from lakestate.spark.checkpoint.offsets import rebuild_directory
from lakestate.spark.versions.quick_logs import FILE_MANAGER, use_quick_logs
from lakestate.testing.faults import Fault, Operation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEADLINE_S = 60


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    job = Job(spark, tmp_path)
    job.give()
    return job


class Fails(Totals):
    def process_batch(self, batch, ctx):
        raise ZeroDivisionError("nothing to divide by")


class TestTriggers:
    def test_available_now_makes_an_epoch_of_every_batch_and_ends(self, job: Job) -> None:
        job.give()
        run_available(job.pipeline(), drain=True)
        assert (job.manifest().epoch, job.manifest().status) == (3, CompletionStatus.FINAL)
        job.check()

    def test_the_parts_of_an_epoch_are_measured_and_kept_by_the_next_one(self, job: Job) -> None:
        job.give()
        query = run_available(job.pipeline())
        first, second = query.recentProgress[:2]
        stored = {part.part: part.microseconds / 1000 for part in job.manifest().parent_parts}
        assert stored.pop(TRIGGER) > 0
        assert stored == pytest.approx(first.parts_ms, abs=0.01)
        for progress in (first, second):
            assert progress.parts_ms.keys() >= {BUILD, SCAN, INPUT, OPERATOR, LOOKUP, WRITE, ENCODE, UPLOAD}
            # The rest of an epoch is what the driver does after its commit.
            assert 0.8 * progress.durations_ms["total"] <= sum(progress.parts_ms.values())
            assert sum(progress.parts_ms.values()) <= 1.01 * progress.durations_ms["total"]

    def test_spark_has_the_class_that_writes_its_logs_quickly_and_the_session_is_not_changed(
        self, job: Job
    ) -> None:
        with use_quick_logs(job.spark):
            assert job.spark.conf.get(FILE_MANAGER).endswith("FileSystemBasedCheckpointFileManager")
        query = job.pipeline().start()
        assert job.spark.conf.get(FILE_MANAGER, None) is None
        query.stop()

    def test_once_makes_one_epoch_of_all_there_is_and_ends(self, job: Job) -> None:
        job.give()
        query = job.pipeline().start(trigger={"once": True})
        assert query.awaitTermination(DEADLINE_S)
        query.stop(drain=True)
        assert job.manifest().epoch == 2
        job.check()

    def test_processing_time_continues_until_it_is_stopped(self, job: Job) -> None:
        query = job.pipeline().start(trigger={"processingTime": "100 milliseconds"})
        wait_for(lambda: query.lastProgress is not None, query)
        job.give()
        wait_for(lambda: query.lastProgress.epoch == 2, query)
        assert query.isActive
        query.stop(drain=True)
        assert not query.isActive
        job.check()


class TestStopping:
    def test_stopping_again_changes_nothing_and_draining_later_still_drains(self, job: Job) -> None:
        query = job.pipeline().start()
        wait_for(lambda: query.lastProgress is not None, query)
        query.stop()
        query.stop()
        assert query.awaitTermination() is True
        assert query.exception() is None
        assert (job.manifest().epoch, job.manifest().status) == (1, CompletionStatus.COMPLETE)
        query.stop(drain=True)
        query.stop(drain=True)
        assert (job.manifest().epoch, job.manifest().status) == (2, CompletionStatus.FINAL)
        job.check()

    def test_what_failed_cannot_be_drained_and_says_why(self, job: Job) -> None:
        pipeline = ls.Pipeline(JOB, job.backend(), parallelism=2)
        pipeline.source(read_stream(job.spark, job.folder / "in")).key_by("user").apply("totals", Fails())
        query = pipeline.start()
        with pytest.raises(ls.OperatorError, match="ZeroDivisionError"):
            query.awaitTermination(DEADLINE_S)
        with pytest.raises(ls.OperatorError, match="ZeroDivisionError"):
            query.stop(drain=True)
        query.stop()
        assert isinstance(query.exception(), ls.OperatorError)
        with pytest.raises(NotFoundError):
            job.manifest()

    def test_a_stop_waits_for_an_epoch_that_fails_under_it(self, job: Job) -> None:
        reached, stops = threading.Event(), threading.Event()

        def fail_once_stopping(operation: Operation, path: str) -> Fault:
            if operation is Operation.CREATE and path.endswith("epochs/0000000001.json"):
                reached.set()
                assert stops.wait(DEADLINE_S)
                return Fault.UNAVAILABLE
            return Fault.NONE

        query = job.pipeline(fail_once_stopping).start()
        assert reached.wait(DEADLINE_S)
        stopper = threading.Thread(target=query.stop)
        stopper.start()
        stops.set()
        stopper.join(DEADLINE_S)
        assert not stopper.is_alive()
        assert isinstance(query.exception(), ls.StorageUnavailableError)
        run_available(job.pipeline(), drain=True)
        job.check()

    def test_a_start_that_finds_no_new_input_can_be_drained(self, job: Job) -> None:
        run_available(job.pipeline())
        run_available(job.pipeline(), drain=True)
        assert (job.manifest().epoch, job.manifest().status) == (2, CompletionStatus.FINAL)
        job.check()

    def test_a_job_that_was_drained_before_its_first_batch_reads_that_batch_later(self, job: Job) -> None:
        (given,) = (job.folder / "in").iterdir()
        hidden = given.rename(job.folder / "hidden")
        run_available(job.pipeline(), drain=True)
        with pytest.raises(NotFoundError):
            job.manifest()
        hidden.rename(given)
        run_available(job.pipeline(), drain=True)
        assert (job.manifest().epoch, job.manifest().status) == (2, CompletionStatus.FINAL)
        job.check()

    def test_what_spark_refuses_to_start_leaves_nothing_behind(self, job: Job) -> None:
        from pyspark.errors import AnalysisException

        pipeline = ls.Pipeline(JOB, job.backend(), parallelism=2)
        counts = read_stream(job.spark, job.folder / "in").groupBy("user").count()
        pipeline.source(counts).sink("out", ls.ParquetSink(f"file://{job.folder}/out"))
        with pytest.raises(AnalysisException):
            pipeline.start(spark_checkpoint=job.folder / "spark")
        assert list((job.folder / "spark").iterdir()) == []

    def test_a_source_with_state_of_sparks_own_is_refused_before_anything_is_published(
        self, job: Job
    ) -> None:
        pipeline = ls.Pipeline(JOB, job.backend(), parallelism=2)
        distinct = read_stream(job.spark, job.folder / "in").dropDuplicates(["user"])
        pipeline.source(distinct).sink("out", ls.ParquetSink(f"file://{job.folder}/out"))
        with pytest.raises(ls.InvalidInputError, match="has state of Spark"):
            run_available(pipeline)
        with pytest.raises(NotFoundError):
            job.manifest()


class TestCommits:
    def test_an_epoch_whose_commit_fails_stands_and_the_next_start_commits_it(
        self, job: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commits: list[int] = []
        commit = FileCommitter.commit

        def failing(self: Any, permit: Any, pre_commits: Any) -> None:
            commits.append(int(permit.epoch))
            if len(commits) == 1:
                raise ls.StorageUnavailableError("the output is not reachable")
            commit(self, permit, pre_commits)

        monkeypatch.setattr(FileCommitter, "commit", failing)
        query = job.pipeline(roll=ls.Roll(bytes=1, interval=None)).start()
        with pytest.raises(ls.StorageUnavailableError, match="the output is not reachable"):
            query.awaitTermination(DEADLINE_S)
        query.stop()
        assert (job.manifest().epoch, read_output(job.folder / "out")) == (1, [])
        job.give()
        run_available(job.pipeline(), drain=True)
        assert commits[:2] == [1, 1]
        job.check()


class Race:
    """An older driver is held before it creates the record of an epoch, until a newer one is there too."""

    def __init__(self, job: Job, epoch: int) -> None:
        self._job = job
        self._record = f"epochs/{epoch:010d}.json"
        self.older_is_held, self._go = threading.Event(), threading.Event()

    def older(self, operation: Operation, path: str) -> Fault:
        if operation is Operation.CREATE and path.endswith(self._record):
            self.older_is_held.set()
            assert self._go.wait(DEADLINE_S)
        return Fault.NONE

    def newer(self, operation: Operation, path: str) -> Fault:
        if operation is Operation.CREATE and path.endswith(self._record):
            self._go.set()
            record = self._job.folder / "checkpoints" / JOB / self._record
            wait_until(record.exists)
        return Fault.NONE


def wait_until(reached: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(DEADLINE_S * 100):
        if reached():
            return
        waiting.wait(0.01)
    raise AssertionError("not reached in time")


@pytest.fixture
def two_jvms(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each driver had its own JVM: within one, Spark stops an older run of the same query."""

    def rebuild_as_another_query(directory: Path, files: Any) -> None:
        another = NamedBytes(METADATA, json.dumps({"id": str(uuid.uuid4())}).encode())
        rebuild_directory(directory, [another if file.name == METADATA else file for file in files])

    monkeypatch.setattr(query_module, "rebuild_directory", rebuild_as_another_query)


@pytest.mark.usefixtures("two_jvms")
class TestTwoDrivers:
    def test_an_epoch_of_a_fenced_driver_that_came_first_stands_and_the_newer_continues_after_it(
        self, job: Job
    ) -> None:
        race = Race(job, 2)
        older = job.pipeline(race.older).start()
        wait_for(lambda: older.lastProgress is not None, older)
        job.give()
        assert race.older_is_held.wait(DEADLINE_S)
        # The newer one reads two files at once: nothing of its discarded epoch may remain, not even offsets.
        job.give()
        newer = job.pipeline(race.newer, files_per_batch=2).start(trigger={"availableNow": True})
        with pytest.raises(ls.FencedError):
            older.awaitTermination(DEADLINE_S)
        assert newer.awaitTermination(DEADLINE_S)
        newer.stop(drain=True)
        older.stop()
        manifest = job.manifest()
        assert (manifest.epoch, manifest.generation) == (4, 2)
        assert job.backend().load_checkpoint_metadata(JOB, 2).generation == 1
        job.check()

    def test_a_drain_begins_again_after_the_epoch_of_a_fenced_driver_that_came_first(self, job: Job) -> None:
        race = Race(job, 2)
        older = job.pipeline(race.older).start()
        wait_for(lambda: older.lastProgress is not None, older)
        job.give()
        assert race.older_is_held.wait(DEADLINE_S)
        # Out of sight, so that the newer one has nothing to read before it drains.
        given = job.folder / "in" / "00001.parquet"
        hidden = given.rename(job.folder / "hidden")
        newer = job.pipeline(race.newer).start(trigger={"availableNow": True})
        assert newer.awaitTermination(DEADLINE_S)
        newer.stop(drain=True)
        with pytest.raises(ls.FencedError):
            older.awaitTermination(DEADLINE_S)
        older.stop()
        hidden.rename(given)
        assert (job.manifest().epoch, job.manifest().status) == (3, CompletionStatus.FINAL)
        job.check()


def test_the_width_of_rows_decides_how_the_next_epoch_hands_them_to_python(
    spark: SparkSession, tmp_path: Path
) -> None:
    limit = "spark.sql.execution.arrow.maxBytesPerBatch"
    by_default = spark.conf.get(limit)
    inputs = [[f"{number}-{size * 'x'}" for number in range(100)] for size in (10, 10, 50_000, 10)]
    for number, texts in enumerate(inputs):
        write_input(tmp_path / "in", number, pa.table({"text": texts}))
    seen = []

    def look(frame: DataFrame) -> DataFrame:
        if not frame.isStreaming and frame.sparkSession.conf.get("spark.sql.adaptive.enabled") == "false":
            seen.append(frame.sparkSession.conf.get(limit))
        return frame

    pipeline = ls.Pipeline("texts", f"file://{tmp_path}/checkpoints", parallelism=2)
    source = pipeline.source(read_stream(spark, tmp_path / "in", "text string"))
    source.transform(look).sink("out", ls.ParquetSink(f"file://{tmp_path}/out"))
    run_available(pipeline, finish_files=True)
    assert seen[-4:] == [by_default, "2147483647", "2147483647", by_default]
    assert spark.conf.get(limit) == by_default
    assert sorted(row["text"] for row in read_output(tmp_path / "out")) == sorted(chain(*inputs))
