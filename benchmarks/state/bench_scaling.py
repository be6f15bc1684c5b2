"""One to eight subtasks on a Spark standalone cluster of two workers with one core each."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from tests.support.spark.standalone_cluster import StandaloneCluster

from benchmarks.core import Benchmark, Contender, Point, Question, Run, at_least
from benchmarks.core.run import alternate
from benchmarks.spark_jobs.epochs import WARM_UP, state_settings
from benchmarks.spark_jobs.local_spark import local_spark
from benchmarks.spark_jobs.running_totals import (
    GROUP_BY,
    LAKESTATE,
    STATELESS,
    run_group_by,
    run_lakestate,
    run_stateless,
    warm_up,
    write_rows,
)

SUBTASKS = "subtasks"
WORKERS = 2
ROWS = 100_000

BENCHMARK = Benchmark(
    name="scaling",
    title="Subtasks on a cluster",
    text=(
        f"Running totals with string keys, {ROWS:,} rows per epoch, on a standalone cluster of {WORKERS} "
        "workers with one core and 1 GB each, all on one machine. More subtasks than cores cost something "
        "and gain nothing; they show what each further subtask costs."
    ),
    contenders=(
        Contender(LAKESTATE, "all defaults; each worker has a cache of its own"),
        Contender(STATELESS, "`foreachBatch`: rows routed to as many tasks by key, and summed up by pyarrow"),
        Contender(GROUP_BY, "RocksDB with changelog checkpoints, as many shuffle partitions"),
    ),
    questions=(
        Question(
            "rate",
            "Rows per second on a cluster, by subtasks",
            "rows/s",
            axis=SUBTASKS,
            aims=(
                at_least(
                    1,
                    "2 subtasks on 2 workers, against 1 subtask",
                    Point(LAKESTATE, {SUBTASKS: 2}),
                    Point(LAKESTATE, {SUBTASKS: 1}),
                    in_readme=False,
                    why=(
                        "three quarters of an epoch of this size are Spark's planning, reading and "
                        "scheduling, as `profile` shows; one task reads the file. Subtasks change neither."
                    ),
                ),
                at_least(
                    0.6,
                    "8 subtasks on 2 workers, against 2 subtasks",
                    Point(LAKESTATE, {SUBTASKS: 8}),
                    Point(LAKESTATE, {SUBTASKS: 2}),
                    in_readme=False,
                    why="each subtask is a Spark task with a Python worker, a run and metadata of its own.",
                ),
            ),
        ),
    ),
    seconds=(80, 190),
)


def measure(run: Run) -> None:
    with run.folder() as folder, StandaloneCluster(folder / "cluster", workers=WORKERS) as cluster:
        settings = state_settings(WORKERS) | {
            "spark.executor.memory": "700m",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        }
        spark = local_spark(settings, master=cluster.url)
        rows, epochs = run.pick(whole=(ROWS, 4), quick=(20_000, 4))
        write_rows(folder / "in", epochs, rows, keys=2 * rows, kind="strings", skew="uniform")
        warm_up(spark, folder / "warm-up", WORKERS)
        # The workers' JVMs compile what they run for minutes. The first round does not count, and each number
        # of subtasks is early in one of the others and late in the next.
        for number, subtasks in alternate(run.pick(whole=["2", "8", "4", "1"], quick=["2", "1"]), 3):
            measure_subtasks(run, spark, folder, rows, int(subtasks), number)
        spark.stop()


def measure_subtasks(
    run: Run, spark: SparkSession, folder: Path, rows: int, subtasks: int, round_number: int
) -> None:
    """All contenders at one parallelism, once."""
    source, place = folder / "in", folder / f"{subtasks}-{round_number}"
    spark.conf.set("spark.sql.shuffle.partitions", str(subtasks))

    contenders = {
        LAKESTATE: lambda: run_lakestate(spark, source, place, "strings", subtasks),
        STATELESS: lambda: run_stateless(spark, source, place, "strings", subtasks),
        GROUP_BY: lambda: run_group_by(spark, source, place, "strings"),
    }
    in_order = [*contenders][:: -1 if round_number % 2 else 1]
    rates = {
        name: lambda _, work=contenders[name]: [rows / ms * 1000 for ms in work()[WARM_UP - 1 :]]
        for name in in_order
    }
    counted = int(round_number > 0)
    run.compare("rate", rates, {SUBTASKS: subtasks}, repetitions=counted, warm_up=1 - counted)
