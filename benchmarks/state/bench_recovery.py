"""How long a job takes from its start to the end of a first small epoch, with much in its state."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.core import Benchmark, Contender, Point, Question, Run, at_least
from benchmarks.spark_jobs.epochs import state_settings
from benchmarks.spark_jobs.local_spark import local_spark
from benchmarks.spark_jobs.running_totals import (
    GROUP_BY,
    STATELESS,
    run_group_by,
    run_lakestate,
    run_stateless,
    write_rows,
)

SUBTASKS, OTHER_SUBTASKS = 4, 8
KEYS = "keys in state"
COLD, WARM, RESCALED = "Lakestate, cold", "Lakestate, warm", "Lakestate, another parallelism"
FILL_EPOCHS = 2
LARGEST = 2_000_000

BENCHMARK = Benchmark(
    name="recovery",
    title="Restart and recovery",
    text=(
        "A job with running totals of so many keys (strings) is started again in a session that is warm. "
        "Measured is the time from the start to the end of a first epoch of 1,000 rows, and of the query."
    ),
    contenders=(
        Contender(COLD, f"{SUBTASKS} subtasks, the host's cache is removed first: another host"),
        Contender(WARM, f"{SUBTASKS} subtasks, the host's cache is there: the same host"),
        Contender(
            RESCALED,
            f"from {SUBTASKS} to {OTHER_SUBTASKS} subtasks and back, the cache is removed first",
        ),
        Contender(
            GROUP_BY, "`groupBy().agg()`, RocksDB state store with changelog checkpoints, 4 partitions"
        ),
        Contender(STATELESS, "`foreachBatch` without state: what Spark itself needs"),
    ),
    questions=(
        Question(
            "start",
            "Time from a start to the end of a small epoch, by keys in state",
            "ms",
            axis=KEYS,
            in_readme=True,
            aims=(
                at_least(
                    1,
                    "a restart with 2M keys: `groupBy` on RocksDB, against Lakestate without a cache",
                    Point(GROUP_BY, {KEYS: LARGEST}),
                    Point(COLD, {KEYS: LARGEST}),
                ),
                at_least(
                    1,
                    "the same, against Lakestate at another parallelism",
                    Point(GROUP_BY, {KEYS: LARGEST}),
                    Point(RESCALED, {KEYS: LARGEST}),
                ),
            ),
        ),
    ),
    seconds=(45, 90),
    in_quick=True,
)


def measure(run: Run) -> None:
    spark = local_spark(state_settings(SUBTASKS))
    for keys in run.pick(whole=[100_000, 500_000, LARGEST], quick=[100_000]):
        with run.folder() as folder:
            restarts(run, spark, folder, keys)
    run.leave_out("start", GROUP_BY, "the number of partitions is fixed by the first run", {"partitions": 8})
    spark.stop()


def restarts(run: Run, spark: SparkSession, folder: Path, keys: int) -> None:
    """Fill the state once for each contender, and start each with one more small file each time."""
    source = folder / "in"
    run.say(f"filling {keys:,} keys")
    write_rows(source, FILL_EPOCHS, keys // FILL_EPOCHS, keys=keys, kind="strings", skew="distinct")
    run_lakestate(spark, source, folder / COLD, "strings", SUBTASKS)
    for name in (WARM, RESCALED):
        shutil.copytree(folder / COLD, folder / name)
    run_group_by(spark, source, folder / GROUP_BY, "strings")
    run_stateless(spark, source, folder / STATELESS, "strings", SUBTASKS)

    def ours(name: str, subtasks: int = SUBTASKS) -> Callable[[], object]:
        return lambda: run_lakestate(spark, source, folder / name, "strings", subtasks)

    def cold(number: int) -> list[float]:
        shutil.rmtree(folder / COLD / "lakestate-cache")
        return [_milliseconds(ours(COLD))]

    def rescaled(number: int) -> list[float]:
        shutil.rmtree(folder / RESCALED / "lakestate-cache")
        return [_milliseconds(ours(RESCALED, OTHER_SUBTASKS if number % 2 == 0 else SUBTASKS))]

    def group_by(number: int) -> list[float]:
        return [_milliseconds(lambda: run_group_by(spark, source, folder / GROUP_BY, "strings"))]

    def stateless(number: int) -> list[float]:
        work = lambda: run_stateless(spark, source, folder / STATELESS, "strings", SUBTASKS)  # noqa: E731
        return [_milliseconds(work)]

    contenders = {
        COLD: cold,
        WARM: lambda _: [_milliseconds(ours(WARM))],
        RESCALED: rescaled,
        GROUP_BY: group_by,
        STATELESS: stateless,
    }
    for number in range(run.pick(whole=2, quick=1)):
        # All contenders read this file before the next one is written.
        write_rows(source, 1, 1_000, keys=keys, kind="strings", skew="uniform", first=FILL_EPOCHS + number)
        names = [*contenders] if number % 2 == 0 else [*reversed(contenders)]
        turn = {name: lambda _, name=name, number=number: contenders[name](number) for name in names}
        run.compare("start", turn, {KEYS: keys}, repetitions=1)


def _milliseconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000
