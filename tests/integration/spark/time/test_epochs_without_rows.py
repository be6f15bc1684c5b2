"""Epochs that run because time has passed, with file sources and with Spark's own."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.spark.pipelines import (
    events,
    read_output,
    read_stream,
    run_available,
    wait_for,
    write_input,
)

import lakestate as ls
from lakestate.codec.engine_files import SparkFiles
from lakestate.protocol.metadata import CompletionStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "minutes"
IDLE = timedelta(milliseconds=300)


class PerMinute(ls.Operator):
    """Counts rows per minute, and yields a minute when it is over."""

    output = "minute timestamp, n bigint, epoch bigint"
    input = "user string, ts timestamp"
    pending = ls.TimeKeyTable(key="user string", value="ts timestamp", time="ts")

    def process_batch(self, batch, ctx):
        self.pending.insert(batch)

    def on_watermark(self, watermark, ctx):
        end = watermark.replace(second=0, microsecond=0)
        rows = self.pending.rows_between(None, end)
        self.pending.expire(end)
        minutes = rows.append_column("minute", pc.floor_temporal(rows["ts"], unit="minute"))
        counts = minutes.group_by("minute").aggregate([([], "count_all")])
        yield pa.table(
            {
                "minute": counts["minute"],
                "n": counts["count_all"],
                "epoch": pa.array([int(ctx.epoch)] * len(counts), pa.int64()),
            }
        )


class Minutes:
    """A job that counts rows per minute, a sink for the counts, and one for all rows."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.files: list[pa.Table] = []

    def give(self) -> None:
        """One more input file, of a hundred seconds."""
        self.files.append(events(len(self.files), 100))
        write_input(self.folder / "in", len(self.files) - 1, self.files[-1])

    def backend(self) -> ls.ParquetBackend:
        return ls.ParquetBackend(f"file://{self.folder}/checkpoints", cache_dir=self.folder / "cache")

    def pipeline(
        self, operator: ls.Operator | None = None, idle: timedelta | None = IDLE, frame: Any = None
    ) -> ls.Pipeline:
        pipeline = ls.Pipeline(JOB, self.backend(), parallelism=2, idle=idle)
        frame = read_stream(self.spark, self.folder / "in") if frame is None else frame
        rows = pipeline.source(frame, event_time="ts")
        # A transform that makes a row of no rows.
        counted = rows.transform(lambda each: each.groupBy().agg({"*": "count"}).toDF("n"))
        counted.sink("counts", ls.JsonLinesSink(f"file://{self.folder}/counts"))
        closed = rows.key_by("user").apply("minutes", operator or PerMinute())
        roll = ls.Roll(bytes=1)
        closed.sink("closed", ls.ParquetSink(f"file://{self.folder}/closed", roll=roll))
        rows.sink("all", ls.ParquetSink(f"file://{self.folder}/all", roll=roll))
        return pipeline

    def closed(self) -> Counter[Any]:
        """The counts that were yielded, by minute."""
        found: Counter[Any] = Counter()
        for row in read_output(self.folder / "closed"):
            found[row["minute"]] += row["n"]
        return found

    def expected(self) -> Counter[Any]:
        """The counts of all minutes that the latest row has closed."""
        times = [row["ts"] for table in self.files for row in table.to_pylist()]
        end = max(times).replace(second=0, microsecond=0)
        return Counter(time.replace(second=0, microsecond=0) for time in times if time < end)

    def manifests(self) -> list[Any]:
        backend = self.backend()
        newest = backend.load_checkpoint_metadata(JOB).epoch
        return [backend.load_checkpoint_metadata(JOB, epoch) for epoch in range(1, newest + 1)]

    def check(self) -> None:
        """Every row is in the output once, and the counts are those of all closed minutes."""
        rows = [row for table in self.files for row in table.to_pylist()]
        assert sorted(map(str, read_output(self.folder / "all"))) == sorted(map(str, rows))
        assert self.closed() == self.expected()
        report = ls.verify(self.backend(), JOB)
        assert report.is_clean, report


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Minutes:
    job = Minutes(spark, tmp_path)
    job.give()
    return job


def rows_read(query: ls.PipelineQuery) -> list[int]:
    return [progress.rows_total for progress in query.recentProgress]


def wait_for_epoch(query: ls.PipelineQuery, epoch: int) -> None:
    wait_for(lambda: query.lastProgress is not None and query.lastProgress.epoch >= epoch, query)


class TestTheEndOfARun:
    def test_what_the_last_rows_close_comes_out(self, job: Minutes) -> None:
        job.give()
        query = run_available(job.pipeline())
        assert rows_read(query) == [100, 100, 0]
        job.check()
        _, second, last = job.manifests()
        assert last.watermark_us == second.sources[0].watermark_us
        assert [source.offsets for source in last.sources] == [source.offsets for source in second.sources]
        assert rows_read(run_available(job.pipeline())) == []
        job.give()
        assert rows_read(run_available(job.pipeline())) == [100, 0]
        job.check()

    def test_who_waits_for_all_rows_waits_for_it_too(self, job: Minutes) -> None:
        query = job.pipeline().start(trigger={"availableNow": True})
        query.processAllAvailable()
        assert (rows_read(query), query.isActive) == ([100, 0], False)
        job.check()

    def test_a_pipeline_in_which_nothing_follows_time_has_no_such_epoch(self, job: Minutes) -> None:
        class Deaf(PerMinute):
            follows_time = False

        assert rows_read(run_available(job.pipeline(Deaf()))) == [100]

    def test_transforms_of_sources_are_not_called(self, job: Minutes) -> None:
        run_available(job.pipeline(), finish_files=True)
        text = "".join(path.read_text() for path in sorted((job.folder / "counts").glob("*.json")))
        assert text == '{"n":100}\n'

    def test_if_it_fails_the_query_fails_and_the_next_start_runs_it(self, job: Minutes) -> None:
        class Fails(PerMinute):
            def on_watermark(self, watermark, ctx):
                raise ValueError("not now")

        query = job.pipeline(Fails()).start(trigger={"availableNow": True})
        with pytest.raises(ls.OperatorError, match="on_watermark raised ValueError"):
            query.awaitTermination(120)
        assert rows_read(query) == [100]
        assert rows_read(run_available(job.pipeline())) == [0]
        job.check()


class TestASilentStream:
    def test_it_gets_one_epoch_and_no_more_until_rows_come(self, job: Minutes) -> None:
        query = job.pipeline().start()
        wait_for_epoch(query, 2)
        job.check()
        job.give()
        wait_for_epoch(query, 4)
        job.check()
        query.stop(finish_files=True)
        assert rows_read(query)[:4] == [100, 0, 100, 0]
        assert [manifest.epoch for manifest in job.manifests()[:4]] == [1, 2, 3, 4]

    def test_it_gets_none_if_that_is_switched_off(self, job: Minutes) -> None:
        query = job.pipeline(idle=None).start()
        wait_for_epoch(query, 1)
        job.give()
        wait_for_epoch(query, 2)
        query.stop()
        assert rows_read(query) == [100, 100]

    def test_a_restart_after_it_continues_exactly(self, job: Minutes) -> None:
        query = job.pipeline().start()
        wait_for_epoch(query, 2)
        job.give()
        # The numbers of Spark's batches are behind those of epochs by now.
        wait_for_epoch(query, 3)
        query.stop()
        for manifest in job.manifests():
            files = SparkFiles.parse(manifest.engine_files, manifest.epoch)
            assert files.query_id == query.id
        job.give()
        query = job.pipeline().start()
        query.processAllAvailable()
        job.give()
        query.processAllAvailable()
        wait_for(lambda: job.closed() == job.expected(), query)
        query.stop()
        job.check()
        assert sum(rows_read(query)) == 200

    def test_it_can_be_drained_afterwards(self, job: Minutes) -> None:
        query = job.pipeline().start()
        wait_for_epoch(query, 2)
        query.stop(drain=True)
        assert [manifest.status for manifest in job.manifests()] == [
            CompletionStatus.COMPLETE,
            CompletionStatus.COMPLETE,
            CompletionStatus.FINAL,
        ]
        job.check()
        job.give()
        run_available(job.pipeline(), reopen=True)
        job.check()

    def test_going_back_to_it_reads_the_rows_after_it_again(self, job: Minutes) -> None:
        run_available(job.pipeline())
        job.give()
        run_available(job.pipeline())
        assert len(job.manifests()) == 4
        query = run_available(job.pipeline(), from_epoch=2, accept_visible_output=True)
        assert rows_read(query) == [100, 0]
        job.give()
        assert rows_read(run_available(job.pipeline())) == [100, 0]

    def test_if_it_fails_the_query_fails(self, job: Minutes) -> None:
        class Fails(PerMinute):
            def on_watermark(self, watermark, ctx):
                raise ValueError("not now")

        query = job.pipeline(Fails()).start()
        with pytest.raises(ls.OperatorError, match="on_watermark raised ValueError"):
            query.awaitTermination(120)
        with pytest.raises(ls.OperatorError):
            query.stop(drain=True)
        assert rows_read(query) == [100]


def test_a_source_that_brings_rows_every_second_is_read_exactly_across_restarts(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's rate source, whose offsets are seconds, with an epoch without rows between its batches."""
    job = Minutes(spark, tmp_path)

    def pipeline() -> ls.Pipeline:
        frame = spark.readStream.format("rate").option("rowsPerSecond", 3).load()
        return job.pipeline(frame=frame.selectExpr("string(value % 5) as user", "timestamp as ts", "value"))

    for _ in range(2):
        query = pipeline().start()
        wait_for(lambda: 0 in rows_read(query)[1:-1] and rows_read(query)[-1] > 0, query)  # noqa: B023
        query.stop()
    values = sorted(row["value"] for row in read_output(tmp_path / "all"))
    assert values == list(range(len(values)))
    assert len(values) >= 6
    assert ls.verify(job.backend(), JOB).is_clean
