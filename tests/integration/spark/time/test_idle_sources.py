"""Sources that pause, and operators that follow the clock, while nothing brings rows."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.spark.pipelines import (
    EVENTS,
    START,
    events,
    read_output,
    read_stream,
    run_available,
    wait_for,
    write_input,
)

import lakestate as ls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDLE = timedelta(milliseconds=200)
MOMENT = timedelta(milliseconds=500)


class Watermarks(ls.Operator):
    """Yields each watermark that is new."""

    output = "watermark timestamp, epoch bigint"

    def process_batch(self, batch, ctx):
        return None

    def on_watermark(self, watermark, ctx):
        if ctx.task.subtask_index == 0 and watermark != ctx.previous_watermark:
            times = pa.array([watermark], pa.timestamp("us", "UTC"))
            yield pa.table({"watermark": times, "epoch": pa.array([int(ctx.epoch)], pa.int64())})


class Reminds(ls.Operator):
    """Yields a user half a second after the last row."""

    output = "user string, due timestamp"
    follows_processing_time = True
    due = ls.KeyedTable(key="user string", value="due timestamp")

    def process_batch(self, batch, ctx):
        later = pa.array([ctx.processing_time + MOMENT] * batch.num_rows, pa.timestamp("us", "UTC"))
        self.due.put(pa.table({"user": batch["user"], "due": later}))

    def on_epoch_end(self, ctx):
        rows = pa.Table.from_batches(self.due.scan(), self.output_schema)
        is_due = pc.less_equal(rows["due"], pa.scalar(ctx.processing_time, pa.timestamp("us", "UTC")))
        yield rows.filter(is_due)
        self.due.delete(rows.filter(is_due))
        if (left := rows.filter(pc.invert(is_due))).num_rows:
            ctx.wake_at(pc.min(left["due"]).cast(pa.int64()).as_py())


def backend(folder: Path) -> ls.ParquetBackend:
    return ls.ParquetBackend(f"file://{folder}/checkpoints", cache_dir=folder / "cache")


def two_sources(spark: SparkSession, folder: Path) -> ls.Pipeline:
    pipeline = ls.Pipeline("job", backend(folder), parallelism=2, idle=IDLE)
    options: dict[str, Any] = {"event_time": "ts", "idle_after": MOMENT}
    busy = pipeline.source(read_stream(spark, folder / "busy"), name="busy", **options)
    quiet = pipeline.source(read_stream(spark, folder / "quiet"), name="quiet", **options)
    marks = busy.key_by("user").connect(quiet.key_by("user")).apply("marks", TwoMarks())
    marks.sink("marks-out", ls.ParquetSink(f"file://{folder}/marks", roll=ls.Roll(bytes=1)))
    return pipeline


class TwoMarks(Watermarks, ls.TwoInputOperator):
    def process_left(self, batch, ctx):
        return None

    process_right = process_left


def latest(table: pa.Table) -> Any:
    return pc.max(table["ts"]).as_py()


class TestIdleSources:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "quiet").mkdir()
        write_input(tmp_path / "busy", 0, events(5, 100))
        return tmp_path

    def test_a_source_without_rows_holds_the_watermark_back_until_it_is_idle(
        self, spark: SparkSession, folder: Path
    ) -> None:
        query = two_sources(spark, folder).start()
        wait_for(lambda: len(query.recentProgress) == 2, query)
        assert [progress.rows_total for progress in query.recentProgress] == [100, 0]
        assert [row["watermark"] for row in read_output(folder / "marks")] == [latest(events(5, 100))]
        # It wakes up with old rows: they are late, and the watermark stands.
        write_input(folder / "quiet", 0, pa.Table.from_pylist([{"user": "a", "ts": START}], schema=EVENTS))
        query.processAllAvailable()
        query.stop()
        woken = [progress for progress in query.recentProgress if progress.rows.get("quiet")]
        assert [progress.late_rows["quiet"] for progress in woken] == [1]
        newest = backend(folder).load_checkpoint_metadata("job")
        assert newest.watermark_us == woken[0].watermark_us
        busy, quiet = newest.sources
        assert busy.rows_at_us < quiet.rows_at_us
        assert ls.verify(backend(folder), "job").is_clean

    def test_a_pause_of_the_job_makes_no_source_idle(self, spark: SparkSession, folder: Path) -> None:
        for _ in range(2):
            query = run_available(two_sources(spark, folder))
        assert query.recentProgress == []
        assert backend(folder).load_checkpoint_metadata("job").watermark_us is None


class TestProcessingTime:
    def pipeline(self, spark: SparkSession, folder: Path) -> ls.Pipeline:
        pipeline = ls.Pipeline("job", backend(folder), parallelism=2, idle=IDLE)
        rows = pipeline.source(read_stream(spark, folder / "in"))
        reminded = rows.key_by("user").apply("reminds", Reminds())
        reminded.sink("out", ls.ParquetSink(f"file://{folder}/out", roll=ls.Roll(bytes=1)))
        return pipeline

    def users(self, folder: Path) -> list[str]:
        return sorted(row["user"] for row in read_output(folder / "out"))

    def test_an_operator_is_called_when_its_time_has_come(self, spark: SparkSession, tmp_path: Path) -> None:
        given = [{"user": user} for user in ("ann", "bob", "cy")]
        write_input(tmp_path / "in", 0, pa.Table.from_pylist(given, schema=EVENTS))
        query = self.pipeline(spark, tmp_path).start()
        wait_for(lambda: self.users(tmp_path) == ["ann", "bob", "cy"], query)
        query.stop()
        assert [progress.rows_total for progress in query.recentProgress] == [3, 0]

    def test_what_was_asked_for_before_a_restart_is_not_forgotten(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        write_input(tmp_path / "in", 0, pa.Table.from_pylist([{"user": "ann"}], schema=EVENTS))
        query = run_available(self.pipeline(spark, tmp_path))
        assert [progress.rows_total for progress in query.recentProgress][:1] == [1]
        query = self.pipeline(spark, tmp_path).start()
        wait_for(lambda: self.users(tmp_path) == ["ann"], query)
        query.stop()
        assert {progress.rows_total for progress in query.recentProgress} == {0}
