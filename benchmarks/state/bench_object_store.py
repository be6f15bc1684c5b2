"""The same job with its state on the local disk and in an object store."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.core import Benchmark, Contender, Point, Question, Run, Unavailable, at_most
from benchmarks.spark_jobs.epochs import WARM_UP, state_settings
from benchmarks.spark_jobs.local_spark import local_spark
from benchmarks.spark_jobs.running_totals import GROUP_BY, run_lakestate, warm_up, write_rows
from lakestate.testing.s3_server import S3Server

SUBTASKS = 4
SIZE = "rows per epoch"
DISK, S3 = "on the local disk", "on S3"
OVERHEAD_MAX = 1.5

BENCHMARK = Benchmark(
    name="object_store",
    title="Local disk and S3",
    text=(
        "Running totals with string keys, `local[2]`, all output rows consumed. The S3 server is "
        "SeaweedFS on the same machine, which takes its share of the two cores; a request takes a "
        "millisecond or so, less than in a data centre."
    ),
    contenders=(
        Contender(DISK, f"Lakestate, {SUBTASKS} subtasks, all defaults"),
        Contender(S3, f"Lakestate, {SUBTASKS} subtasks, all defaults; the cache is on the local disk"),
        Contender(GROUP_BY, "needs Hadoop's connector for S3"),
    ),
    questions=(
        Question(
            "epoch",
            "Time of an epoch on the local disk and on S3, by rows per epoch",
            "ms",
            axis=SIZE,
            aims=(
                at_most(
                    OVERHEAD_MAX,
                    "an epoch of 100k rows on S3, against the local disk",
                    Point(S3, {SIZE: 100_000}),
                    Point(DISK, {SIZE: 100_000}),
                    in_readme=False,
                    why="the requests of an epoch follow each other, and the server shares the processors.",
                ),
            ),
        ),
    ),
    seconds=(30, 60),
)


def measure(run: Run) -> None:
    spark = local_spark(state_settings(SUBTASKS))
    try:
        with run.folder() as folder:
            warm_up(spark, folder, SUBTASKS)
        with S3Server() as server:
            for size, epochs in run.pick(
                whole=[(1_000, 8), (100_000, 6), (1_000_000, 4)], quick=[(1_000, 5), (100_000, 4)]
            ):
                with run.folder() as folder:
                    measure_size(run, spark, server, folder, size, epochs)
    finally:
        spark.stop()
    run.leave_out(
        "epoch", GROUP_BY, "Spark's state on S3 needs Hadoop's connector; `requests` counts what it asks"
    )


def measure_size(
    run: Run, spark: SparkSession, server: S3Server, folder: Path, size: int, epochs: int
) -> None:
    """Both places, in turns."""
    source = folder / "in"
    write_rows(source, epochs, size, keys=max(100_000, 2 * size), kind="strings", skew="uniform")

    def on_disk(number: int) -> list[float]:
        return run_lakestate(spark, source, folder / f"disk-{number}", "strings", SUBTASKS)[WARM_UP - 1 :]

    def on_s3(number: int) -> list[float]:
        try:
            checkpoint = server.store_config(f"bench-{size}-{number}")
        except OSError as failure:
            raise Unavailable(f"the S3 server does not start: {failure}") from failure
        times = run_lakestate(
            spark, source, folder / f"s3-{number}", "strings", SUBTASKS, checkpoint=checkpoint
        )
        return times[WARM_UP - 1 :]

    repetitions = run.pick(whole=2, quick=1)
    run.compare("epoch", {DISK: on_disk, S3: on_s3}, {SIZE: size}, repetitions=repetitions)
