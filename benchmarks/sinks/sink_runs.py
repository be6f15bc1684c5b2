"""What benchmarks of sinks on Spark share: rows of an event stream, a pipeline into a sink, and a check."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import lakestate as ls
from benchmarks.spark_jobs.epoch_times import Times
from benchmarks.spark_jobs.epochs import ROW_GROUP_ROWS
from lakestate.sinks.sink import Sink

SCHEMA = "id bigint, user string, amount double, ts timestamp, country string"
CODEC = "zstd"
ZSTD_LEVEL = 3
"""The level that Spark uses."""


def write_input(folder: Path, files: int, rows: int) -> None:
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
        pq.write_table(table, folder / f"{number:05d}.parquet", row_group_size=ROW_GROUP_ROWS)
        os.utime(folder / f"{number:05d}.parquet", (1_700_000_000 + number, 1_700_000_000 + number))


def read_input(spark: SparkSession, folder: Path) -> DataFrame:
    """The files as a stream, one in each micro-batch."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def run_pipeline(spark: SparkSession, source: Path, folder: Path, sink: Sink) -> Times:
    """The epochs of a pipeline that only writes."""
    times = Times(with_this_process=True)

    class Ends:
        def on_epoch(self, progress: ls.EpochProgress) -> None:
            # Not the one without rows that finishes the files in the end.
            if progress.rows_total:
                times.epoch_ended()

    folder.mkdir(parents=True, exist_ok=True)
    pipeline = ls.Pipeline("sink", f"file://{folder}/state", parallelism=2)
    pipeline.source(read_input(spark, source)).sink("out", sink)
    query = pipeline.start(trigger={"availableNow": True}, listeners=[Ends()], progress=False)
    query.awaitTermination()
    times.stop()
    query.stop(finish_files=True)
    return times


def check_rows(files: Iterable[Path], source: Path) -> None:
    """Files hold as many rows as there were."""
    written = sum(pq.read_metadata(path).num_rows for path in files)
    given = sum(pq.read_metadata(path).num_rows for path in source.glob("*.parquet"))
    if written != given:
        raise RuntimeError(f"readers find {written:,} of {given:,} rows")
