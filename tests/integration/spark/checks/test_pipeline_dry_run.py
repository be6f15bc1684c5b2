"""A dry run tells everything that would keep a pipeline from starting, and changes nothing."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.support.spark.pipelines import events, read_stream, run_available, wait_for, write_input
from tests.support.spark.totals import Totals

import lakestate as ls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "shop"


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def add_tier(rows: pa.Table) -> pa.Table:
    return rows.append_column("tier", pa.array(["free"] * len(rows)))


def fail(rows: pa.Table) -> pa.Table:
    raise ValueError("no tier")


class Upgraded(Totals):
    totals = ls.KeyedTable(
        key="user string",
        value="n bigint, spend double, tier string",
        version=2,
        migrations=[ls.ArrowMigration(1, add_tier)],
    )


class Broken(Totals):
    totals = ls.KeyedTable(
        key="user string",
        value="n bigint, spend double, tier string",
        version=2,
        migrations=[ls.ArrowMigration(1, fail)],
    )


class Renamed(Totals):
    totals = ls.KeyedTable("sums", key="user string", value="n bigint, spend double")


class Needs(ls.Operator):
    input = "usr string"


class Unpicklable(Totals):
    def __init__(self) -> None:
        self.lock = threading.Lock()


class Jobs:
    """Pipelines of one job over one source."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.backend = ls.ParquetBackend(folder / "checkpoints", cache_dir=folder / "cache")

    def pipeline(self, operator: ls.Operator, step: str = "totals", source: str = "source") -> ls.Pipeline:
        pipeline = ls.Pipeline(JOB, self.backend, parallelism=2)
        rows = pipeline.source(read_stream(self.spark, self.folder / "in"), name=source)
        rows.key_by("user").apply(step, operator)
        return pipeline


@pytest.fixture
def jobs(spark: SparkSession, tmp_path: Path) -> Jobs:
    """A job with one epoch."""
    jobs = Jobs(spark, tmp_path)
    write_input(tmp_path / "in", 0, events(0, 100))
    run_available(jobs.pipeline(Totals()))
    return jobs


def summaries(report: ls.PipelineDryRun) -> list[tuple[str, str | None]]:
    return [(problem.summary, problem.object_name) for problem in report.problems]


def test_a_pipeline_that_can_start_is_clean(spark: SparkSession, tmp_path: Path) -> None:
    jobs = Jobs(spark, tmp_path)
    write_input(tmp_path / "in", 0, events(0, 100))
    new = jobs.pipeline(Totals()).dry_run()
    assert (new, str(new)) == (ls.PipelineDryRun(JOB, None), "job shop can start from the beginning")
    new.raise_if_any()
    assert not (tmp_path / "checkpoints").exists()


def test_every_migration_is_tried_and_nothing_changes(jobs: Jobs) -> None:
    before = files_below(jobs.folder / "checkpoints")
    report = jobs.pipeline(Upgraded()).dry_run()
    rows = sum(entry.summary.row_count for entry in jobs.backend.newest_checkpoint(JOB).operators[0].subtasks)
    assert report == ls.PipelineDryRun(JOB, ls.Epoch(1), (), 2, rows)
    broken = jobs.pipeline(Broken()).dry_run()
    assert [problem.found for problem in broken.problems if "no tier" in str(problem)]
    assert len(broken.problems) == 2, "one for each file"
    assert files_below(jobs.folder / "checkpoints") == before


def test_all_problems_are_told_at_once_and_each_once(jobs: Jobs, tmp_path: Path) -> None:
    before = files_below(jobs.folder / "checkpoints")
    pipeline = ls.Pipeline(JOB, jobs.backend, parallelism=2)
    source = pipeline.source(read_stream(jobs.spark, tmp_path / "in"), name="orders", event_time="tss")
    source.key_by("usr").apply("lost", Totals())
    source.key_by("amount").apply("totals", Renamed())
    source.key_by("user").apply("needs", Needs())
    source.sink("out", ls.ParquetSink(tmp_path / "out", partition_by=["town"]))
    source.sink("lake", ls.IcebergSink("a.b", catalog=tmp_path / "lake", partition_by=["day(amount)"]))
    report = pipeline.dry_run(drop=["totals.ttals"])
    assert not report.is_clean
    assert summaries(report) == [
        ("key_by names a column that the rows do not have", "usr"),
        ("event_time of source orders names a column that the rows do not have", "tss"),
        ("the key of table sums differs from the key of the rows of operator totals", None),
        ("operator needs needs columns that its input does not have", "usr string"),
        ("files are partitioned by a column that rows do not have", "town"),
        ("a column cannot be partitioned this way", "amount"),
        ("epoch 1 of job shop has no such state to drop", "totals.ttals"),
        ("the sources of the job differ from those of its newest epoch", "epoch 1 of job shop"),
        ("stored state cannot be used", summaries(report)[-1][1]),
    ]
    assert "drop=['totals.totals']" in str(report.problems[-1])
    shown = str(report).splitlines()
    assert shown[0] == "job shop cannot start: 9 problems"
    assert shown[2] == f"  2. {report.problems[1]}"
    with pytest.raises(ls.InvalidInputError, match="job shop cannot start: 9 problems"):
        report.raise_if_any()
    assert files_below(jobs.folder / "checkpoints") == before
    assert not (tmp_path / "lake").exists()
    assert not (tmp_path / "out").exists()


def test_a_single_problem_is_raised_as_it_is(jobs: Jobs) -> None:
    report = jobs.pipeline(Totals(), step="renamed").dry_run()
    with pytest.raises(ls.IncompatibleStateError, match="stored operators are no longer in the pipeline"):
        report.raise_if_any()
    assert jobs.pipeline(Totals(), step="renamed").dry_run(drop=["totals"]).is_clean


def test_code_that_workers_cannot_have_is_told(jobs: Jobs) -> None:
    report = jobs.pipeline(Unpicklable()).dry_run()
    assert summaries(report) == [
        ("operators or sinks cannot be sent to workers, because they cannot be pickled", "totals")
    ]
    assert "TypeError: cannot pickle '_thread.lock' object" in str(report)


def test_a_finished_job_is_told_unless_it_is_reopened(jobs: Jobs) -> None:
    run_available(jobs.pipeline(Totals()), drain=True)
    assert [problem.code for problem in jobs.pipeline(Totals()).dry_run().problems] == ["incompatible_state"]
    assert jobs.pipeline(Totals()).dry_run(reopen=True).is_clean


def test_a_running_driver_is_not_disturbed(jobs: Jobs) -> None:
    query = jobs.pipeline(Totals()).start(trigger={"processingTime": "0 seconds"})
    try:
        fence = jobs.backend.objects(JOB).read_fence()
        assert jobs.pipeline(Totals()).dry_run().is_clean
        assert not jobs.pipeline(Renamed()).dry_run().is_clean
        assert jobs.backend.objects(JOB).read_fence() == fence
        write_input(jobs.folder / "in", 1, events(1, 100))
        wait_for(lambda: jobs.backend.newest_checkpoint(JOB).epoch == 2, query)
    finally:
        query.stop()
    assert query.exception() is None
