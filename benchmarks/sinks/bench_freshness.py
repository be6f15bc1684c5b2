"""How soon readers see rows, and in how many files: tables and files, against Spark's own file sink."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import lakestate as ls
from benchmarks.core import Benchmark, Contender, Point, Question, Run, at_most
from benchmarks.sinks.readable_rows import (
    POLL_S,
    ListFiles,
    RowWatch,
    files_of_delta,
    files_of_folder,
    files_of_iceberg,
    files_of_spark_sink,
)
from benchmarks.spark_jobs.local_spark import local_spark
from lakestate.sinks.sink import Sink

TRIGGER = "1 second"
ROWS_PER_SECOND = 5_000
SUBTASKS = 2
VISIBLE = "2 seconds"
SPARK, FILES = "Spark's Parquet sink", "ParquetSink"
ICEBERG, ICEBERG_SHOWN = "IcebergSink", "IcebergSink, visible"
DELTA, DELTA_SHOWN = "DeltaSink", "DeltaSink, visible"
FILES_WHY = "each subtask has finished a file in every interval, and shows small files of the last one."
VISIBLE_WHY = f"rows wait for {VISIBLE}, for the end of their epoch, and for the commit to the table."
START_S = 60
"""How long a query may take to start."""
SETTLE_S = 4
"""After the last row that counts, besides the interval in which files are finished."""


@dataclass(frozen=True)
class Span:
    """Seconds of a run: those before rows count, those in which they do, and the age of a finished file."""

    warm_up_s: int
    counted_s: int
    interval_s: int

    @property
    def whole_s(self) -> int:
        """Until every row that counts can be read."""
        return self.warm_up_s + self.counted_s + self.interval_s + SETTLE_S


BENCHMARK = Benchmark(
    name="freshness",
    title="How soon rows can be read",
    text=(
        f"A stream of {ROWS_PER_SECOND:,} rows per second (Spark's `rate` source) into a table or a folder, "
        f"with a trigger of {TRIGGER}, `local[2]`, {SUBTASKS} subtasks. An outside reader asks every 50 ms "
        "which files there are (by the catalog, the Delta log, the folder, or the log of Spark's sink), and "
        "reads new ones. The time of a row is from its timestamp to the moment at which that reader finds "
        "it, so it includes up to one second for which the source holds rows back. Each run takes as long "
        "as every other, and in the end every row is found once."
    ),
    contenders=(
        Contender(SPARK, '`format("parquet")`, each trigger writes its files'),
        Contender(FILES, "files are finished when they are 20 seconds old"),
        Contender(ICEBERG, "the same; SQLite catalog"),
        Contender(ICEBERG_SHOWN, f'the same, with `Roll(visible="{VISIBLE}")`'),
        Contender(DELTA, "files are finished when they are 20 seconds old"),
        Contender(DELTA_SHOWN, f'the same, with `Roll(visible="{VISIBLE}")`'),
    ),
    questions=(
        Question(
            "p50",
            "From event to readable: half of the rows",
            "ms",
            aims=(
                at_most(
                    0.5,
                    "`visible`, Iceberg: half of the rows, against waiting for large files",
                    Point(ICEBERG_SHOWN),
                    Point(ICEBERG),
                    in_readme=False,
                    why=VISIBLE_WHY,
                ),
                at_most(
                    0.5,
                    "`visible`, Delta: half of the rows, against waiting for large files",
                    Point(DELTA_SHOWN),
                    Point(DELTA),
                    in_readme=False,
                    why=VISIBLE_WHY,
                ),
            ),
        ),
        Question("p99", "From event to readable: 99 of 100 rows", "ms"),
        Question(
            "files",
            "Files that readers open in the end",
            "files",
            aims=(
                at_most(
                    0.1,
                    "`visible`, Iceberg: files, against Spark's Parquet sink",
                    Point(ICEBERG_SHOWN),
                    Point(SPARK),
                    in_readme=False,
                    why=FILES_WHY,
                ),
                at_most(
                    0.1,
                    "`visible`, Delta: files, against Spark's Parquet sink",
                    Point(DELTA_SHOWN),
                    Point(SPARK),
                    in_readme=False,
                    why=FILES_WHY,
                ),
            ),
        ),
        Question(
            "bytes",
            "Bytes of data files that were written",
            "bytes",
            text="Small files that a large one has replaced are counted too: nobody has removed them yet.",
        ),
    ),
    seconds=(150, 350),
)


@dataclass(frozen=True)
class Output:
    """A contender at work: how an outside reader lists its files, and how it ends."""

    list_files: ListFiles
    stop: Callable[[], Any]


def measure(run: Run) -> None:
    spark = local_spark({"spark.sql.shuffle.partitions": str(SUBTASKS)})
    span = run.pick(whole=Span(6, 20, 20), quick=Span(4, 8, 6))
    with run.folder() as folder:
        # Starts Python workers, and compiles what all of them need.
        measure_freshness(spark, folder, FILES, Span(1, 1, 1))

        def measure_contender(name: str) -> list[float]:
            found = measure_freshness(spark, folder, name, span)
            for question in ("p99", "files", "bytes"):
                run.record(question, name, [found[question]])
            return [found["p50"]]

        names = [each.name for each in BENCHMARK.contenders]
        contenders = {name: lambda _, name=name: measure_contender(name) for name in names}
        run.compare("p50", contenders, repetitions=1)
    spark.stop()


def measure_freshness(spark: SparkSession, folder: Path, name: str, span: Span) -> dict[str, float]:
    """Run a contender: milliseconds from event to readable, files in the end, and bytes."""
    place = Path(tempfile.mkdtemp(dir=folder))
    output = start_contender(spark, place, name, span.interval_s)
    watch = RowWatch(output.list_files, "value", "timestamp")
    try:
        wait_until_over(watch, span)
    finally:
        output.stop()
        watch.stop()
    check_rows(watch)
    first = span.warm_up_s * ROWS_PER_SECOND
    late_ms = watch.late_ms(range(first, first + span.counted_s * ROWS_PER_SECOND))
    p50, p99 = np.quantile(late_ms, [0.5, 0.99])
    return {
        "p50": float(p50),
        "p99": float(p99),
        "files": float(len(watch.listed)),
        "bytes": float(sum(path.stat().st_size for path in files_of_folder(place / "out")() or ())),
    }


def wait_until_over(watch: RowWatch, span: Span) -> None:
    """Wait for as long as the run takes, from the first row on."""
    gives_up_s = time.monotonic() + span.whole_s + START_S
    while time.monotonic() < gives_up_s and watch.failure is None:
        if watch.begun_us is not None and time.time() > watch.begun_us / 1_000_000 + span.whole_s:
            return
        time.sleep(POLL_S)
    raise watch.failure or AssertionError(f"{len(watch.late_us):,} rows were found in {span.whole_s} s")


def start_contender(spark: SparkSession, place: Path, name: str, interval_s: int) -> Output:
    """Start the query of a contender below a folder."""
    source = spark.readStream.format("rate").option("rowsPerSecond", ROWS_PER_SECOND).load()
    stream = source.selectExpr("value", "timestamp", "concat('user-', value % 1000) AS user", "rand() AS x")
    out = place / "out"
    if name == SPARK:
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
        query = writer.trigger(processingTime=TRIGGER).start(str(out))
        return Output(files_of_spark_sink(out), query.stop)
    visible = VISIBLE if name in (ICEBERG_SHOWN, DELTA_SHOWN) else None
    roll = ls.Roll(bytes="128MB", interval=f"{interval_s} seconds", visible=visible)
    sinks: dict[str, Callable[[], tuple[Sink, ListFiles]]] = {
        FILES: lambda: (ls.ParquetSink(out, roll=roll), files_of_folder(out)),
        ICEBERG: lambda: (
            ls.IcebergSink("bench.rows", catalog=str(out), roll=roll),
            files_of_iceberg(out, "bench.rows"),
        ),
        DELTA: lambda: (ls.DeltaSink(out, roll=roll), files_of_delta(out)),
    }
    sink, list_files = sinks[name.partition(",")[0]]()
    pipeline = ls.Pipeline("bench", place / "checkpoints", parallelism=SUBTASKS, cache_dir=place / "cache")
    pipeline.source(stream).sink("out", sink)
    started = pipeline.start(trigger={"processingTime": TRIGGER}, progress=False)
    return Output(list_files, lambda: started.stop(finish_files=True))


def check_rows(watch: RowWatch) -> None:
    """In the end every row is there once: the source numbers them."""
    numbers = sorted(number for path in watch.listed for number in pq.read_table(path)["value"].to_pylist())
    if numbers != [*range(len(watch.late_us))]:
        raise AssertionError(f"{len(numbers):,} rows in the end, {len({*numbers}):,} different ones")
