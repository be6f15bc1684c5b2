"""Sinks in a Spark stream: ours, and Spark's own for Parquet, Delta and Iceberg."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from tests.support.jars import DELTA, ICEBERG, jars_of

import lakestate as ls
from benchmarks.core import Benchmark, Contender, Point, Question, Run, Unavailable, at_least, at_most
from benchmarks.spark_jobs.epoch_times import Times, batch_times
from benchmarks.spark_jobs.local_spark import local_spark
from lakestate.sinks.sink import Sink

ROWS = 500_000
SMALL_EPOCHS = 50
SMALL_ROWS = 20_000
SCHEMA = "id bigint, user string, amount double, ts timestamp, country string"
OWN_SESSION_TIMEOUT_S = 120
CODEC = "zstd"
ZSTD_LEVEL = 3
"""The level that Spark uses."""
SPARK_PARQUET, SPARK_DELTA, SPARK_ICEBERG = (
    "Spark's Parquet sink",
    "Spark's Delta sink",
    "Spark's Iceberg sink",
)
DATA_SOURCE, PIPELINE = 'format("lakestate")', "ParquetSink"
OUR_DELTA, OUR_ICEBERG, PYARROW = "DeltaSink", "IcebergSink", "pyarrow"
TABLE_JARS = {SPARK_DELTA: DELTA, SPARK_ICEBERG: ICEBERG}
SIZE = "rows per epoch"

Measured = Callable[[SparkSession, Path, Path], Times]
"""Takes a session, the input and a new folder. Returns how long the epochs took."""

BENCHMARK = Benchmark(
    name="sinks",
    title="Sinks on Spark",
    text=(
        "Rows of an event stream (a number, text, an amount, a time, a country) from Parquet files, one "
        "file per epoch, on `local[2]`, into files with the same codec (zstd, level 3). Spark's sinks "
        "write a file per partition and epoch; ours keep files open across epochs."
    ),
    contenders=(
        Contender(SPARK_PARQUET, '`format("parquet")`'),
        Contender(DATA_SOURCE, "as a data source, all defaults"),
        Contender(PIPELINE, "in a `Pipeline`, 2 subtasks, all defaults"),
        Contender(SPARK_DELTA, '`format("delta")`, in a session of its own'),
        Contender(OUR_DELTA, "in a `Pipeline`, 2 subtasks, all defaults"),
        Contender(SPARK_ICEBERG, '`format("iceberg")` into a Hadoop catalog, in a session of its own'),
        Contender(OUR_ICEBERG, "in a `Pipeline`, 2 subtasks, SQLite catalog, all defaults"),
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
                        why="rows reach Python, spread over subtasks; Spark writes where it reads.",
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
    seconds=(60, 150),
)


def measure(run: Run) -> None:
    rows, epochs = run.pick(whole=(ROWS, 5), quick=(50_000, 4))
    spark = local_spark()
    ls.register(spark)
    with run.folder() as folder:
        _write_input(folder / "large", epochs, rows)
        large_epochs(run, spark, folder, rows)
        _write_input(folder / "small", run.pick(whole=SMALL_EPOCHS, quick=5), SMALL_ROWS)
        small_epochs(run, spark, folder)
    spark.stop()


def large_epochs(run: Run, spark: SparkSession, folder: Path, rows: int) -> None:
    """All contenders, in turns."""

    def timed(name: str, number: int) -> list[float]:
        times = CONTENDERS[name](spark, folder / "large", folder / f"large-{number}-{_plain(name)}")
        run.record("processor", name, [times.cpu_ms])
        return [rows / ms * 1000 for ms in times.clock_ms]

    def foreign(name: str, number: int) -> list[float]:
        times_ms = _in_own_session(name, folder / "large", folder / f"large-{number}-{_plain(name)}")
        return [rows / ms * 1000 for ms in times_ms]

    def alone(number: int) -> list[float]:
        return [rows / ms * 1000 for ms in _copy_files(folder / "large", folder / f"large-{number}-pyarrow")]

    contenders: dict[str, Callable[[int], list[float]]] = {
        name: lambda number, name=name: timed(name, number) for name in CONTENDERS
    }
    contenders |= {name: lambda number, name=name: foreign(name, number) for name in TABLE_JARS}
    contenders[PYARROW] = alone
    run.compare("rate", contenders, repetitions=run.pick(whole=2, quick=1))


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
    return batch_times(writer)


def _data_source(spark: SparkSession, source: Path, folder: Path) -> Times:
    options = {"path": str(folder / "out"), "checkpointLocation": str(folder / "c"), "compression": CODEC}
    options["compressionLevel"] = str(ZSTD_LEVEL)
    times = batch_times(read_input(spark, source).writeStream.format("lakestate").options(**options))
    ls.finish_files(**options)
    _check(folder / "out", source)
    return times


def _parquet(spark: SparkSession, source: Path, folder: Path) -> Times:
    out = f"file://{folder}/out"
    sink = ls.ParquetSink(out, compression=CODEC, compression_level=ZSTD_LEVEL)
    times = _pipeline(spark, source, folder, sink)
    _check(folder / "out", source)
    return times


def _delta(spark: SparkSession, source: Path, folder: Path) -> Times:
    return _pipeline(spark, source, folder, ls.DeltaSink(f"file://{folder}/out"))


def _iceberg(spark: SparkSession, source: Path, folder: Path) -> Times:
    folder.mkdir(parents=True)
    catalog = ls.IcebergCatalog.sqlite(f"file://{folder}/warehouse")
    return _pipeline(spark, source, folder, ls.IcebergSink("bench.events", catalog=catalog))


def _pipeline(spark: SparkSession, source: Path, folder: Path, sink: Sink) -> Times:
    times = Times()

    class Ends:
        def on_epoch(self, progress: object) -> None:
            times.epoch_ended()

    folder.mkdir(parents=True, exist_ok=True)
    pipeline = ls.Pipeline("sink", f"file://{folder}/state", parallelism=2)
    pipeline.source(read_input(spark, source)).sink("out", sink)
    query = pipeline.start(trigger={"availableNow": True}, listeners=[Ends()], progress=False)
    query.awaitTermination()
    times.stop()
    query.stop(finish_files=True)
    return times


CONTENDERS: dict[str, Measured] = {
    SPARK_PARQUET: _sparks_own,
    DATA_SOURCE: _data_source,
    PIPELINE: _parquet,
    OUR_DELTA: _delta,
    OUR_ICEBERG: _iceberg,
}


def _in_own_session(name: str, source: Path, folder: Path) -> list[float]:
    """Milliseconds of Spark's sink for tables: its jars must not change what the others run on."""
    group = TABLE_JARS[name]
    if not jars_of(group):
        raise Unavailable(f"the jars of {group} are not there: run scripts/fetch-jars")
    command = [sys.executable, "-m", "benchmarks.sinks.spark_table_sink", group, str(source), str(folder)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=OWN_SESSION_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"it has not ended after {OWN_SESSION_TIMEOUT_S} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "Error" in line or "Exception" in line]
        jars = ", ".join(jar.stem for jar in jars_of(group) if "spark" in jar.stem)
        raise Unavailable(f"{jars} does not run on this Spark: {(lines or ['no reason given'])[0][:160]}")
    times: list[float] = json.loads(done.stdout.splitlines()[-1])
    return times


def _copy_files(source: Path, folder: Path) -> list[float]:
    folder.mkdir()
    times = []
    for path in sorted(source.glob("*.parquet")):
        started = time.perf_counter()
        rows = pq.read_table(path)
        pq.write_table(rows, folder / path.name, compression=CODEC, compression_level=ZSTD_LEVEL)
        times.append((time.perf_counter() - started) * 1000)
    return times[1:]


def _check(out: Path, source: Path) -> None:
    written = sum(pq.read_metadata(path).num_rows for path in _visible(out))
    given = sum(pq.read_metadata(path).num_rows for path in source.glob("*.parquet"))
    assert written == given, f"{written} of {given} rows"


def _visible(out: Path) -> list[Path]:
    return [path for path in out.rglob("*.parquet") if ".lakestate" not in path.parts]


def read_input(spark: SparkSession, folder: Path) -> DataFrame:
    """The files as a stream, one in each micro-batch."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def _write_input(folder: Path, files: int, rows: int) -> None:
    """Keys, text, numbers and times, as in an event stream."""
    folder.mkdir(parents=True)
    for number in range(files):
        random = np.random.default_rng(number)
        table = pa.table(
            {
                "id": np.arange(number * rows, (number + 1) * rows),
                "user": pa.array(random.integers(0, 100_000, rows)).cast(pa.string()),
                "amount": random.random(rows),
                "ts": pa.array(np.cumsum(random.integers(0, 1000, rows)), pa.timestamp("us", "UTC")),
                "country": pa.array(np.array(["DE", "FR", "UK", "US"])[random.integers(0, 4, rows)]),
            }
        )
        # Several row groups, so that Spark can read a large file in several tasks.
        pq.write_table(table, folder / f"{number:05d}.parquet", row_group_size=125_000)
        os.utime(folder / f"{number:05d}.parquet", (1_700_000_000 + number, 1_700_000_000 + number))
