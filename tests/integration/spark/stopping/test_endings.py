"""How a query ends: for a pause, for good, in time, or because another one has taken over its job."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.support.spark.pipelines import (
    read_output,
    read_stream,
    run_available,
    spark_totals,
    state_rows,
    wait_for,
)
from tests.support.spark.query_job import JOB, Job
from tests.support.spark.totals import Totals

import lakestate as ls
from lakestate.protocol.metadata import CompletionStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEADLINE_S = 60


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    job = Job(spark, tmp_path)
    job.give()
    return job


class Closes(Totals):
    """Says in its output what is called."""

    output = "user string, n bigint, spend double"

    def on_close(self, ctx):
        yield pa.table({"user": [f"closed in {ctx.epoch}"], "n": [0], "spend": [0.0]})


class TestEndings:
    """A pause finishes files and calls nothing; the end of a stream calls `on_close` and finishes the job."""

    def pipeline(self, job: Job) -> ls.Pipeline:
        pipeline = ls.Pipeline(JOB, job.backend(), parallelism=1)
        # A transform that makes a row of no rows.
        source = pipeline.source(read_stream(job.spark, job.folder / "in"), event_time="ts")
        counted = source.transform(lambda frame: frame.groupBy().agg({"*": "count"}).toDF("n"))
        counted.sink("counts", ls.ParquetSink(f"file://{job.folder}/counts"))
        source.key_by("user").apply("totals", Closes()).sink(
            "out", ls.ParquetSink(f"file://{job.folder}/out")
        )
        return pipeline

    def closed(self, job: Job) -> list[str]:
        users = (row["user"] or "" for row in read_output(job.folder / "out"))
        return [user for user in users if user.startswith("closed")]

    def test_runs_with_pauses_give_what_one_run_gives_and_a_pause_without_open_files_adds_nothing(
        self, job: Job
    ) -> None:
        run_available(self.pipeline(job), finish_files=True)
        first = job.manifest()
        assert (first.epoch, first.status) == (2, CompletionStatus.COMPLETE)
        assert first.watermark_us is None
        run_available(self.pipeline(job), finish_files=True)
        assert job.manifest().epoch == 2
        job.give()
        query = run_available(self.pipeline(job), finish_files=True)
        query.stop(finish_files=True)
        newest = job.manifest()
        assert newest.epoch == 4
        assert newest.watermark_us == job.backend().load_checkpoint_metadata(JOB, 3).watermark_us
        assert [row["n"] for row in read_output(job.folder / "counts")] == [100, 100]
        assert self.closed(job) == []
        found = state_rows(job.backend(), JOB, "totals", Closes(), "totals")
        assert found == spark_totals(job.spark, job.folder / "in")

    def test_a_drained_job_is_finished_and_starts_again_only_if_it_is_reopened(self, job: Job) -> None:
        run_available(self.pipeline(job), drain=True)
        assert (job.manifest().epoch, job.manifest().status) == (2, CompletionStatus.FINAL)
        assert self.closed(job) == ["closed in 2"]
        generation = json.loads((job.folder / "checkpoints" / JOB / "generation.json").read_text())
        with pytest.raises(ls.IncompatibleStateError, match="the stream of this job has ended"):
            self.pipeline(job).start()
        after = json.loads((job.folder / "checkpoints" / JOB / "generation.json").read_text())
        assert after == generation
        run_available(self.pipeline(job), reopen=True, drain=True)
        assert job.manifest().epoch == 2
        job.give()
        run_available(self.pipeline(job), reopen=True, drain=True)
        assert (job.manifest().epoch, job.manifest().status) == (4, CompletionStatus.FINAL)
        assert sorted(self.closed(job)) == ["closed in 2", "closed in 4"]


class Hangs(Totals):
    """Hangs in its second epoch."""

    def process_batch(self, batch, ctx):
        while ctx.epoch == 2:
            time.sleep(0.1)
        return super().process_batch(batch, ctx)


class TestStopInTime:
    def test_an_epoch_that_hangs_is_cancelled_and_run_again_by_the_next_start(self, job: Job) -> None:
        pipeline = ls.Pipeline(JOB, job.backend(), parallelism=2)
        rows = pipeline.source(read_stream(job.spark, job.folder / "in"))
        rows.key_by("user").apply("totals", Hangs())
        rows.sink("out", ls.ParquetSink(f"file://{job.folder}/out"))
        query = pipeline.start()
        wait_for(lambda: query.lastProgress is not None, query)
        job.give()
        wait_for(lambda: query._epochs.running == 2 and has_active_job(job.spark), query)
        with pytest.raises(ls.StopTimeoutError, match="epoch 2 was running; nothing of it is published"):
            query.stop(finish_files=True, timeout="1 second")
        assert isinstance(query.exception(), ls.StopTimeoutError)
        assert not query.isActive
        assert job.manifest().epoch == 1
        run_available(job.pipeline(), finish_files=True)
        job.check()


def has_active_job(spark: SparkSession) -> bool:
    return bool(spark.sparkContext.statusTracker().getActiveJobsIds())


class TestTakenOverInOneProcess:
    """Spark stops the older of two runs of a query in one JVM, and says nothing about it."""

    def test_the_first_of_two_starts_ends_with_an_error(self, job: Job) -> None:
        first = job.pipeline().start()
        first.processAllAvailable()
        assert [each.name for each in job.spark.streams.active] == [JOB]
        second = job.pipeline().start()
        with pytest.raises(ls.FencedError):
            first.awaitTermination(DEADLINE_S)
        with pytest.raises(ls.FencedError):
            first.stop(finish_files=True)
        job.give()
        second.processAllAvailable()
        assert (first.id, second.name) == (second.id, JOB)
        assert first.runId != second.runId
        assert [each.epoch for each in second.recentProgress] == [2]
        second.stop(finish_files=True)
        job.check()
