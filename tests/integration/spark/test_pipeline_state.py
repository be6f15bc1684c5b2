"""Pipelines on local Spark: state and output equal what Spark SQL says over the same input."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.spark.pipelines import (
    events,
    read_output,
    read_stream,
    run_available,
    spark_totals,
    state_rows,
    wait_for,
    write_input,
)
from tests.support.spark.totals import Totals

import lakestate as ls
from lakestate.protocol.metadata import CompletionStatus
from lakestate.sinks.formats.parquet.sink import ParquetSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def backend(tmp_path: Path) -> ls.ParquetBackend:
    return ls.ParquetBackend(f"file://{tmp_path}/checkpoints", cache_dir=tmp_path / "cache")


class FailsOnce(Totals):
    def process_batch(self, batch, ctx):
        from pyspark import TaskContext

        yield from super().process_batch(batch, ctx)
        if TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("the first attempt fails after it wrote")


class Fails(Totals):
    def process_batch(self, batch, ctx):
        yield from super().process_batch(batch, ctx)
        raise ZeroDivisionError("nothing to divide by")


def published(backend: ls.ParquetBackend) -> list[tuple[str, bytes]]:
    """The records of the job. A manifest without one is an orphan that nobody reads."""
    store = backend.objects("totals").store
    names = sorted(info.path for info in store.list("totals/"))
    return [(name, store.get(name).data) for name in names if name.endswith(".json")]


def totals_pipeline(
    spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend, parallelism: int = 2
) -> ls.Pipeline:
    pipeline = ls.Pipeline("totals", backend, parallelism=parallelism)
    pipeline.source(read_stream(spark, tmp_path / "in")).key_by("user").apply("totals", Totals())
    return pipeline


class TestOneStage:
    def test_totals_equal_those_of_spark_sql_over_restarts_and_rescaling(
        self, spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend
    ) -> None:
        for number, parallelism in enumerate((4, 7, 2)):
            write_input(tmp_path / "in", number, events(number, 500))
            run_available(totals_pipeline(spark, tmp_path, backend, parallelism))
            found = state_rows(backend, "totals", "totals", Totals(), "totals")
            assert found == spark_totals(spark, tmp_path / "in")
        manifest = backend.load_checkpoint_metadata("totals")
        assert (manifest.epoch, manifest.generation) == (3, 3)

    def test_a_task_that_fails_once_is_run_again_and_the_result_is_exact(
        self, spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend
    ) -> None:
        for number in range(2):
            write_input(tmp_path / "in", number, events(number, 300))
        pipeline = ls.Pipeline("totals", backend, parallelism=2)
        pipeline.source(read_stream(spark, tmp_path / "in")).key_by("user").apply("totals", FailsOnce())
        run_available(pipeline)
        found = state_rows(backend, "totals", "totals", Totals(), "totals")
        assert found == spark_totals(spark, tmp_path / "in")

    def test_an_operator_that_raises_publishes_nothing_and_a_restart_continues(
        self, spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend
    ) -> None:
        write_input(tmp_path / "in", 0, events(0, 300))
        run_available(totals_pipeline(spark, tmp_path, backend))
        write_input(tmp_path / "in", 1, events(1, 300))
        broken = ls.Pipeline("totals", backend, parallelism=2)
        broken.source(read_stream(spark, tmp_path / "in")).key_by("user").apply("totals", Fails())
        with pytest.raises(ls.OperatorError, match=r"operator totals, subtask \d of 2, epoch 2") as raised:
            run_available(broken)
        assert "ZeroDivisionError" in str(raised.value)
        assert "in process_batch" in "".join(raised.value.__notes__)
        assert backend.load_checkpoint_metadata("totals").epoch == 1
        run_available(totals_pipeline(spark, tmp_path, backend))
        found = state_rows(backend, "totals", "totals", Totals(), "totals")
        assert found == spark_totals(spark, tmp_path / "in")


class TestDrivers:
    def test_an_older_driver_is_fenced_and_changes_nothing_more(
        self, spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend
    ) -> None:
        write_input(tmp_path / "in", 0, events(0, 100))
        query = totals_pipeline(spark, tmp_path, backend).start()
        wait_for(lambda: query.lastProgress is not None, query)
        other = ls.ParquetBackend(f"file://{tmp_path}/checkpoints")
        other.claim("totals")
        before = published(backend)
        write_input(tmp_path / "in", 1, events(1, 100))
        with pytest.raises(ls.FencedError, match="another driver has taken over"):
            query.awaitTermination(60)
        assert not query.isActive
        query.stop()
        assert published(backend) == before


class TestOutput:
    def test_output_is_exact_once_files_are_finished_and_continues_after_it(
        self, spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend
    ) -> None:
        expected: list[dict[str, object]] = []
        for number in range(2):
            rows = events(number, 300)
            write_input(tmp_path / "in", number, rows)
            expected += rows.to_pylist()
            pipeline = ls.Pipeline("copy", backend, parallelism=2)
            sink = ParquetSink(f"file://{tmp_path}/out")
            pipeline.source(read_stream(spark, tmp_path / "in")).sink("out", sink)
            run_available(pipeline, finish_files=True)
            assert sorted(read_output(tmp_path / "out"), key=str) == sorted(expected, key=str)
        manifest = backend.load_checkpoint_metadata("copy")
        assert (manifest.epoch, manifest.status) == (4, CompletionStatus.COMPLETE)


class TestGoingBack:
    def test_a_pipeline_continues_from_an_earlier_epoch_with_its_state_and_its_offsets(
        self, spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend
    ) -> None:
        def pipeline() -> ls.Pipeline:
            made = ls.Pipeline("totals", backend, parallelism=2)
            rows = made.source(read_stream(spark, tmp_path / "in"))
            rows.key_by("user").apply("totals", Totals())
            rows.sink("out", ParquetSink(f"file://{tmp_path}/out"))
            return made

        rows = [events(number, 20).to_pylist() for number in range(5)]
        for number in range(3):
            write_input(tmp_path / "in", number, events(number, 20))
        run_available(pipeline(), finish_files=True)
        backend.create_tag("totals", "second", 2)
        with pytest.raises(ls.VisibleOutputError, match="sink out: 2 files, 60 rows"):
            run_available(pipeline(), from_epoch="second")
        # Twice, as a program that is started again.
        for number in (3, 4):
            write_input(tmp_path / "in", number, events(number, 20))
            run_available(pipeline(), from_epoch="second", accept_visible_output=True, finish_files=True)
            found = state_rows(backend, "totals", "totals", Totals(), "totals")
            assert found == spark_totals(spark, tmp_path / "in")
        # The rows of the third file were visible when the job went back, and are written again.
        expected = [row for number in (0, 1, 2, 2, 3, 4) for row in rows[number]]
        assert sorted(read_output(tmp_path / "out"), key=str) == sorted(expected, key=str)
        assert ls.verify(backend, "totals").is_clean
        manifest = backend.load_checkpoint_metadata("totals")
        assert manifest.went_back is not None
        assert (manifest.went_back.to, manifest.went_back.epoch) == (2, 5)

    def test_a_job_whose_newest_manifest_is_damaged_continues_from_the_one_before(
        self, spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend
    ) -> None:
        for number in range(3):
            write_input(tmp_path / "in", number, events(number, 20))
        run_available(totals_pipeline(spark, tmp_path, backend))
        path = tmp_path / "checkpoints/totals/checkpoints/3/manifest.pb"
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(ls.CorruptionError, match=r"manifest\.pb"):
            totals_pipeline(spark, tmp_path, backend).start()
        run_available(totals_pipeline(spark, tmp_path, backend), from_epoch=2, accept_visible_output=True)
        found = state_rows(backend, "totals", "totals", Totals(), "totals")
        assert found == spark_totals(spark, tmp_path / "in")


def test_a_fork_reads_on_from_its_epoch_muted_and_then_writes_only_its_own_rows(
    spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend
) -> None:
    def pipeline(job_id: str, output: str) -> ls.Pipeline:
        made = ls.Pipeline(job_id, backend, parallelism=2, retention=ls.RetentionPolicy(2))
        rows = made.source(read_stream(spark, tmp_path / "in"))
        rows.key_by("user").apply("totals", Totals())
        rows.sink("out", ls.ParquetSink(f"file://{tmp_path}/{output}"))
        return made

    def totals_of(job_id: str) -> object:
        return state_rows(backend, job_id, "totals", Totals(), "totals")

    rows = [events(number, 20).to_pylist() for number in range(4)]
    for number in range(2):
        write_input(tmp_path / "in", number, events(number, 20))
    # Files are open when the fork is made.
    parent = pipeline("totals", "out").start(trigger={"processingTime": "100 milliseconds"})
    parent.processAllAvailable()
    before = totals_of("totals")
    assert ls.fork(backend, "totals", "trial").left_out == ("out",)
    # The parent runs on, while the fork runs with the same code: Spark knows them apart.
    write_input(tmp_path / "in", 2, events(2, 20))
    parent.processAllAvailable()
    assert totals_of("trial") == before
    run_available(pipeline("trial", "out"))
    expected = spark_totals(spark, tmp_path / "in")
    assert totals_of("trial") == expected
    parent.stop(finish_files=True)
    assert totals_of("totals") == expected
    written = sorted((row for number in range(3) for row in rows[number]), key=str)
    assert sorted(read_output(tmp_path / "out"), key=str) == written
    # Asked to write, to a place of its own, from now on.
    write_input(tmp_path / "in", 3, events(3, 20))
    run_available(pipeline("trial", "own"), finish_files=True, unmute=True)
    assert totals_of("trial") == spark_totals(spark, tmp_path / "in")
    assert sorted(read_output(tmp_path / "own"), key=str) == sorted(rows[3], key=str)
    assert sorted(read_output(tmp_path / "out"), key=str) == written
    assert totals_of("totals") == expected
    for job_id in ("totals", "trial"):
        assert ls.verify(backend, job_id).is_clean
