"""Where the time of an epoch goes, small and large: what `lakestate profile` shows of any job."""

from __future__ import annotations

import lakestate as ls
from benchmarks.core import Benchmark, Contender, Question, Run
from benchmarks.spark_jobs.local_spark import local_spark
from benchmarks.spark_jobs.running_totals import run_lakestate, write_rows
from lakestate.observability.time_parts import PARTS

SUBTASKS = 4
WARM_UP = 3
SIZE = "rows per epoch"

BENCHMARK = Benchmark(
    name="profile",
    title="Where the time goes",
    text=(
        "Running count and sum by string keys, in a pipeline with defaults and 4 subtasks, on `local[2]`: "
        "the parts of its epochs, as `lakestate profile` shows them of any job. The first three epochs "
        "do not count. Keys are drawn from twice as many as there are rows in an epoch, at least 100,000."
    ),
    contenders=tuple(Contender(part.name, f"{part.owner} {part.what}") for part in PARTS),
    questions=(
        Question(
            "parts", "Where the time of an epoch goes, by rows in it", "ms", is_stacked=True, in_readme=True
        ),
    ),
    seconds=(45, 65),
    in_quick=True,
)


def measure(run: Run) -> None:
    """Run jobs, and read what their drivers have kept."""
    spark = local_spark(
        {"spark.sql.shuffle.partitions": str(SUBTASKS), "spark.sql.adaptive.enabled": "false"}
    )
    for size, epochs in run.pick(
        whole=[(1_000, 30), (100_000, 15), (1_000_000, 10)], quick=[(1_000, 12), (250_000, 8)]
    ):
        with run.folder() as folder:
            run.say(f"parts, {size} rows per epoch")
            write_rows(
                folder / "in", epochs, size, keys=max(100_000, 2 * size), kind="strings", skew="uniform"
            )
            run_lakestate(spark, folder / "in", folder, "strings", SUBTASKS)
            found = ls.open(folder / "lakestate").job("bench").profile(epochs - WARM_UP)
            for part in found.parts:
                run.record("parts", part.part, [part.milliseconds], {SIZE: size})
    spark.stop()
