"""Sinks in a Spark stream: ours, and Spark's own for Parquet, Delta and Iceberg."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import lakestate as ls
from benchmarks.core import Benchmark, Contender, Point, Question, Run, at_least, at_most
from benchmarks.sinks import table_sinks
from benchmarks.sinks.sink_runs import CODEC, ZSTD_LEVEL, check_rows, read_input, run_pipeline, write_input
from benchmarks.sinks.table_sinks import (
    OUR_DELTA,
    OUR_ICEBERG,
    SPARK_DELTA,
    SPARK_ICEBERG,
    SPARK_VERSION,
    run_in_own_session,
)
from benchmarks.spark_jobs.epoch_times import Times, batch_times
from benchmarks.spark_jobs.local_spark import local_spark

ROWS = 500_000
SMALL_EPOCHS = 50
SMALL_ROWS = 20_000
WARM_UP_EPOCHS = 3
SPARK_PARQUET, PYARROW = "Spark's Parquet sink", "pyarrow"
DATA_SOURCE, PIPELINE = 'format("lakestate")', "ParquetSink"
SIZE = "rows per epoch"

ROWS_REACH_PYTHON = (
    "for 60 % of an epoch, subtasks wait for rows, which Spark reads, spreads over them and hands to Python; "
    "encoding and writing them takes 15 % (`lakestate profile`). Spark writes where it reads."
)

Measured = Callable[[SparkSession, Path, Path], Times]
"""Takes a session, the input and a new folder. Returns how long the epochs took."""

BENCHMARK = Benchmark(
    name="sinks",
    title="Sinks on Spark",
    text=(
        "Rows of an event stream (a number, text, an amount, a time, a country) from Parquet files, one "
        "file per epoch, on `local[2]`, into files with the same codec (zstd, level 3). Spark's sinks "
        "write a file per partition and epoch; ours keep files open across epochs, and finish them when the "
        "job stops, after the epochs that are timed. In the end, readers find every row. Delta and Iceberg "
        "have no jars for this Spark: their sinks, and ours beside them, run on "
        f"Spark {SPARK_VERSION}, each in a process of its own, three times; the first does not count."
    ),
    contenders=(
        Contender(SPARK_PARQUET, '`format("parquet")`'),
        Contender(DATA_SOURCE, "as a data source, all defaults"),
        Contender(PIPELINE, "in a `Pipeline`, 2 subtasks, all defaults"),
        Contender(SPARK_DELTA, f'`format("delta")`, Spark {SPARK_VERSION}'),
        Contender(OUR_DELTA, f"in a `Pipeline`, 2 subtasks, Spark {SPARK_VERSION}"),
        Contender(SPARK_ICEBERG, f'`format("iceberg")` into a Hadoop catalog, Spark {SPARK_VERSION}'),
        Contender(OUR_ICEBERG, f"in a `Pipeline`, 2 subtasks, SQLite catalog, Spark {SPARK_VERSION}"),
        Contender(PYARROW, "reads and writes each file in one process, without Spark and without promises"),
    ),
    questions=(
        Question(
            "rate",
            "Rows per second of sinks, 500k rows per epoch",
            "rows/s",
            in_readme=True,
            aims=(
                *(
                    at_least(
                        1.2,
                        f"{ours}, against {theirs}",
                        Point(ours),
                        Point(theirs),
                        why=ROWS_REACH_PYTHON,
                    )
                    for ours, theirs in (
                        (DATA_SOURCE, SPARK_PARQUET),
                        (PIPELINE, SPARK_PARQUET),
                        (OUR_DELTA, SPARK_DELTA),
                        (OUR_ICEBERG, SPARK_ICEBERG),
                    )
                ),
            ),
        ),
        Question(
            "processor",
            "Processor time of an epoch of 500k rows, all processes",
            "ms",
        ),
        Question(
            "files",
            "Files after 50 epochs of 20,000 rows",
            "files",
            aims=tuple(
                at_most(1 / 20, f"files after 50 small epochs: {ours}", Point(ours), Point(SPARK_PARQUET))
                for ours in (DATA_SOURCE, PIPELINE)
            ),
        ),
        Question("small", "Time of an epoch of 20,000 rows", "ms"),
    ),
    seconds=(170, 300),
)


def measure(run: Run) -> None:
    rows, epochs = run.pick(whole=(ROWS, 5), quick=(50_000, 4))
    spark = local_spark()
    ls.register(spark)
    with run.folder() as folder:
        write_input(folder / "warm-up", WARM_UP_EPOCHS, SMALL_ROWS)
        write_input(folder / "large", epochs, rows)
        large_epochs(run, spark, folder, rows)
        write_input(folder / "small", run.pick(whole=SMALL_EPOCHS, quick=5), SMALL_ROWS)
        small_epochs(run, spark, folder)
    spark.stop()


def large_epochs(run: Run, spark: SparkSession, folder: Path, rows: int) -> None:
    """All contenders, in turns."""

    def timed(name: str, number: int) -> list[float]:
        if number == 0:
            CONTENDERS[name](spark, folder / "warm-up", folder / f"warm-up-{_plain(name)}")
        times = CONTENDERS[name](spark, folder / "large", folder / f"large-{number}-{_plain(name)}")
        run.record("processor", name, [times.cpu_ms])
        return [rows / ms * 1000 for ms in times.clock_ms]

    def foreign(name: str) -> list[float]:
        took = run_in_own_session(name, folder / "large", folder / f"large-{_plain(name)}")
        run.record("processor", name, took.cpu_ms)
        return [rows / ms * 1000 for ms in took.clock_ms]

    def alone(number: int) -> list[float]:
        return [rows / ms * 1000 for ms in _copy_files(folder / "large", folder / f"large-{number}-pyarrow")]

    contenders: dict[str, Callable[[int], list[float]]] = {
        name: lambda number, name=name: timed(name, number) for name in CONTENDERS
    }
    contenders[PYARROW] = alone
    run.compare("rate", contenders, repetitions=run.pick(whole=2, quick=1))
    in_own_sessions = {name: lambda _, name=name: foreign(name) for name in table_sinks.CONTENDERS}
    run.compare("rate", in_own_sessions, repetitions=1)


def small_epochs(run: Run, spark: SparkSession, folder: Path) -> None:
    """Files that readers see in the end, and the time of an epoch."""

    def timed(name: str) -> list[float]:
        target = folder / f"small-{_plain(name)}"
        times = CONTENDERS[name](spark, folder / "small", target)
        run.record("files", name, [len(_visible(target / "out"))])
        return times.clock_ms

    names = (SPARK_PARQUET, DATA_SOURCE, PIPELINE)
    run.compare("small", {name: lambda _, name=name: timed(name) for name in names}, repetitions=1)
    for name in (OUR_DELTA, OUR_ICEBERG):
        run.leave_out("files", name, "`freshness` counts files of tables")
    for name in (SPARK_DELTA, SPARK_ICEBERG):
        run.leave_out(
            "files", name, "writes as many files as Spark's Parquet sink: one per partition and epoch"
        )


def _plain(name: str) -> str:
    return "".join(letter for letter in name if letter.isalnum())


def _sparks_own(spark: SparkSession, source: Path, folder: Path) -> Times:
    writer = read_input(spark, source).writeStream.format("parquet").option("compression", CODEC)
    writer = writer.option("path", str(folder / "out")).option("checkpointLocation", str(folder / "c"))
    times = batch_times(writer)
    check_rows(_visible(folder / "out"), source)
    return times


def _data_source(spark: SparkSession, source: Path, folder: Path) -> Times:
    options = {"path": str(folder / "out"), "checkpointLocation": str(folder / "c"), "compression": CODEC}
    options["compressionLevel"] = str(ZSTD_LEVEL)
    times = batch_times(read_input(spark, source).writeStream.format("lakestate").options(**options))
    ls.finish_files(**options)
    check_rows(_visible(folder / "out"), source)
    return times


def _parquet(spark: SparkSession, source: Path, folder: Path) -> Times:
    out = f"file://{folder}/out"
    sink = ls.ParquetSink(out, compression=CODEC, compression_level=ZSTD_LEVEL)
    times = run_pipeline(spark, source, folder, sink)
    check_rows(_visible(folder / "out"), source)
    return times


CONTENDERS: dict[str, Measured] = {
    SPARK_PARQUET: _sparks_own,
    DATA_SOURCE: _data_source,
    PIPELINE: _parquet,
}


def _copy_files(source: Path, folder: Path) -> list[float]:
    folder.mkdir()
    times = []
    for path in sorted(source.glob("*.parquet")):
        started = time.perf_counter()
        rows = pq.read_table(path)
        pq.write_table(rows, folder / path.name, compression=CODEC, compression_level=ZSTD_LEVEL)
        times.append((time.perf_counter() - started) * 1000)
    return times[1:]


def _visible(out: Path) -> list[Path]:
    return [path for path in out.rglob("*.parquet") if ".lakestate" not in path.parts]
