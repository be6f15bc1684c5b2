"""Input that a pipeline cannot process: a clear error, nothing published, and a restart that continues."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.spark.pipelines import (
    events,
    read_stream,
    run_available,
    spark_totals,
    state_rows,
    write_input,
)
from tests.support.spark.totals import Totals

import lakestate as ls
from lakestate.config import RetryPolicy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakestate.testing.s3_server import S3Server

JOB = "totals"


class Job:
    """One job over input files. It is run with an operator, and a transform, that a test chooses."""

    def __init__(self, spark: SparkSession, folder: Path, backend: ls.ParquetBackend) -> None:
        self.spark = spark
        self.folder = folder
        self.backend = backend

    def give(self, number: int, rows: pa.Table | None = None) -> None:
        """An input file."""
        write_input(self.folder / "in", number, events(number, 200) if rows is None else rows)

    def pipeline(self, operator: ls.Operator, transform: Any = None) -> ls.Pipeline:
        pipeline = ls.Pipeline(JOB, self.backend, parallelism=2)
        rows = pipeline.source(read_stream(self.spark, self.folder / "in"))
        rows = rows if transform is None else rows.transform(transform)
        rows.key_by("user").apply("totals", operator)
        return pipeline

    def run(self, operator: ls.Operator | None = None, transform: Any = None, **options: Any) -> None:
        """Read all input there is."""
        run_available(self.pipeline(operator or Totals(), transform), **options)

    def newest_epoch(self) -> int:
        return int(self.backend.load_checkpoint_metadata(JOB).epoch)

    def check(self, epochs: int) -> None:
        """State is what Spark SQL says over all input, after exactly so many epochs."""
        found = state_rows(self.backend, JOB, "totals", Totals(), "totals")
        assert found == spark_totals(self.spark, self.folder / "in")
        assert self.newest_epoch() == epochs


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    """A job with one good epoch behind it."""
    backend = ls.ParquetBackend(f"file://{tmp_path}/checkpoints", cache_dir=tmp_path / "cache")
    job = Job(spark, tmp_path, backend)
    job.give(0)
    job.run()
    return job


class NeedsAmounts(Totals):
    input = "user string, amount double not null"


class StoresAmounts(Totals):
    """Puts what it is given where no null may be."""

    checked = ls.KeyedTable(key="user string", value="amount double not null")

    def process_batch(self, batch, ctx):
        ctx.checked.put(pa.table(batch).select(["user", "amount"]))
        yield from super().process_batch(batch, ctx)


class Yields(Totals):
    """Yields correct rows after a change that the test chooses."""

    def __init__(self, change: Callable[[pa.Table], pa.Table]) -> None:
        self.change = change

    def process_batch(self, batch, ctx):
        for rows in super().process_batch(batch, ctx):
            yield self.change(rows)


def without_amounts(number: int) -> pa.Table:
    rows = events(number, 200)
    return rows.set_column(1, "amount", pa.nulls(200, pa.float64()))


class TestRows:
    def test_a_file_with_another_type_is_refused_until_it_is_put_right(self, job: Job) -> None:
        job.give(1)
        rows = events(2, 200)
        job.give(2, rows.set_column(1, "amount", rows["amount"].cast(pa.string())))
        with pytest.raises(ls.OperatorError, match="Spark could not run the epoch") as raised:
            job.run()
        assert "00002.parquet" in str(raised.value)
        assert "column [amount]. Expected Spark type double" in str(raised.value)
        # The good file before it is a separate epoch, and stays published.
        assert job.newest_epoch() == 2
        job.give(2)
        job.run()
        job.check(3)

    def test_a_transform_that_returns_other_columns_than_at_the_start_ends_the_job(self, job: Job) -> None:
        has_changed = []

        def cast_later(frame: DataFrame) -> DataFrame:
            if not has_changed:
                return frame
            return frame.selectExpr("user", "cast(amount as string) as amount", "ts")

        class Change:
            def on_epoch(self, progress: ls.EpochProgress) -> None:
                has_changed.append(True)

        job.give(1)
        job.give(2)
        with pytest.raises(
            ls.InvalidInputError, match=r"cast_later; found .*`amount` string.*amount` double"
        ):
            job.run(transform=cast_later, listeners=[Change()])
        assert job.newest_epoch() == 2
        job.run()
        job.check(3)

    def test_a_null_where_none_may_be_is_named_with_its_column(self, job: Job) -> None:
        job.give(1, without_amounts(1))
        with pytest.raises(
            ls.OperatorError, match=r"input of operator totals, subtask \d of 2, epoch 2.*amount"
        ):
            job.run(NeedsAmounts())
        with pytest.raises(
            ls.OperatorError, match=r"operator totals, subtask \d of 2, epoch 2.*amount.*null"
        ):
            job.run(StoresAmounts())
        assert job.newest_epoch() == 1
        job.give(1)
        job.run()
        job.check(2)

    def test_an_operator_that_yields_other_columns_than_it_declared_is_named(self, job: Job) -> None:
        """One case of many: `tests/unit/runtime/test_operator_step.py` has the others, without Spark."""
        job.give(1)
        with pytest.raises(ls.OperatorError, match=r"output does not have: .*; found more") as raised:
            job.run(Yields(lambda rows: rows.append_column("more", rows["n"])))
        assert "operator totals" in str(raised.value)
        assert job.newest_epoch() == 1
        job.run()
        job.check(2)


class TestStorage:
    def test_a_store_that_disappears_ends_the_job_and_a_restart_continues(
        self, spark: SparkSession, tmp_path: Path, s3_server: S3Server
    ) -> None:
        # A server that is gone refuses at once; one that is only busy has its time.
        quick = RetryPolicy(deadline_ms=1500, attempt_timeout_ms=20_000)
        config = s3_server.store_config(f"outage/{tmp_path.name}", retry=quick)
        job = Job(spark, tmp_path, ls.ParquetBackend(config, cache_dir=tmp_path / "cache"))
        for number in range(3):
            job.give(number)

        class Outage:
            def on_epoch(self, progress: ls.EpochProgress) -> None:
                s3_server.kill()

        try:
            with pytest.raises(ls.StorageUnavailableError, match=r"did not answer within 1\.5 s"):
                job.run(listeners=[Outage()])
            with pytest.raises(ls.StorageUnavailableError, match=r"did not answer within 1\.5 s"):
                job.run()
        finally:
            s3_server.kill()
            s3_server.start()
        assert job.newest_epoch() == 1
        job.run()
        job.check(3)

    def test_a_full_disk_under_the_state_ends_the_job_until_there_is_room(
        self, spark: SparkSession, tmp_path: Path, small_disk: Path
    ) -> None:
        backend = ls.ParquetBackend(f"file://{small_disk}/checkpoints", cache_dir=tmp_path / "cache")
        job = Job(spark, tmp_path, backend)
        job.give(0)
        job.run()
        job.give(1)
        fill(small_disk)
        with pytest.raises(ls.StorageUnavailableError, match=r"the disk is full: file://.*free some space"):
            job.run()
        (small_disk / "filling").unlink()
        assert job.newest_epoch() == 1
        job.run()
        job.check(2)

    def test_a_full_disk_under_the_cache_does_not_stop_the_job(
        self, spark: SparkSession, tmp_path: Path, small_disk: Path
    ) -> None:
        backend = ls.ParquetBackend(f"file://{tmp_path}/checkpoints", cache_dir=small_disk / "cache")
        job = Job(spark, tmp_path, backend)
        job.give(0)
        job.run()
        job.give(1)
        fill(small_disk)
        job.run()
        (small_disk / "filling").unlink()
        job.give(2)
        job.run()
        job.check(3)

    def test_a_cache_that_is_damaged_between_and_during_runs_changes_nothing(self, job: Job) -> None:
        class Damage:
            def on_epoch(self, progress: ls.EpochProgress) -> None:
                assert damage(job.folder / "cache")

        for number in (1, 2, 3):
            job.give(number)
        assert damage(job.folder / "cache")
        job.run(listeners=[Damage()])
        job.check(4)


class TestOtherJobs:
    def test_what_others_keep_beside_sparks_logs_is_not_touched(self, job: Job) -> None:
        theirs = job.folder / "spark" / "offsets" / "0"
        theirs.parent.mkdir(parents=True)
        theirs.write_text("v1\n{}\n7")
        job.give(1)
        job.run(spark_checkpoint=job.folder / "spark")
        job.check(2)
        assert [path for path in (job.folder / "spark").rglob("*") if path.is_file()] == [theirs]
        assert theirs.read_text() == "v1\n{}\n7"

    def test_the_state_of_another_job_in_the_place_of_ones_own_is_refused(self, job: Job) -> None:
        checkpoints = job.folder / "checkpoints"
        shutil.copytree(checkpoints / JOB, checkpoints / "copied")
        pipeline = ls.Pipeline("copied", job.backend, parallelism=2)
        rows = pipeline.source(read_stream(job.spark, job.folder / "in"))
        rows.key_by("user").apply("totals", Totals())
        with pytest.raises(
            ls.CorruptionError, match=r"not the epoch of this job.*found .*totals.*expected .*copied"
        ):
            pipeline.start()
        job.check(1)

    def test_other_sources_than_those_of_the_newest_epoch_are_refused(self, job: Job) -> None:
        pipeline = ls.Pipeline(JOB, job.backend, parallelism=2)
        rate = job.spark.readStream.format("rate").load().selectExpr("'a' as user", "1.0D as amount")
        pipeline.source(rate, name="rate").key_by("user").apply("totals", Totals())
        with pytest.raises(ls.IncompatibleStateError, match=r"found rate; expected source, in this order"):
            pipeline.start()
        job.check(1)


def damage(cache: Path) -> int:
    """Overwrite the content of every cached file with as many other bytes; says how many there were."""
    files = list(cache.glob("*.run"))
    for path in files:
        path.write_bytes(b"\xa5" * path.stat().st_size)
    return len(files)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate file system with room for a small job."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Leave no room: one page less than a file of a page needs."""
    with (disk / "filling").open("wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 4096):
                pass
        except OSError:
            pass
