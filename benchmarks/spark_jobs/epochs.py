"""Epochs of contenders over the same Parquet files, one file per epoch and source.

Times are those between the ends of epochs. Every contender's output is consumed: by `noop` in Spark, by an
operator that counts in Lakestate.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import lakestate as ls
from lakestate.protocol.key_ranges import subtask_sql

ROCKS_DB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""Spark's own state as its documentation recommends it for large state."""


def state_settings(subtasks: int) -> dict[str, str]:
    """Settings of a session that compares Spark's state with ours: as many partitions as subtasks."""
    return ROCKS_DB | {
        "spark.sql.shuffle.partitions": str(subtasks),
        "spark.sql.adaptive.enabled": "false",
    }


WARM_UP = 2
"""Epochs that are not counted: code is compiled and workers are started."""


ROW_GROUP_ROWS = 125_000


class Consume(ls.Operator):
    """Takes rows and drops them."""

    def process_batch(self, batch: pa.RecordBatch, ctx: ls.OperatorContext) -> None:
        """Count them, as if they were written somewhere."""
        self.rows = batch.num_rows


def write_epochs(folder: Path, epochs: int, rows: Callable[[int], pa.Table], *, first: int = 0) -> None:
    """One file per epoch, read in this order."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + epochs):
        path = folder / f"{number:05d}.parquet"
        # Several row groups, so that Spark can read a large file in several tasks.
        pq.write_table(rows(number), path, row_group_size=ROW_GROUP_ROWS)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def read_epochs(spark: SparkSession, folder: Path, schema: str) -> DataFrame:
    """The files as a stream, one in each micro-batch."""
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def lakestate_epochs(
    folder: Path,
    subtasks: int,
    build: Callable[[ls.Pipeline], Any],
    *,
    checkpoint: str | Path | ls.StoreConfig | ls.ParquetBackend | None = None,
) -> list[float]:
    """Milliseconds of the epochs of a pipeline, whose checkpoint is in the folder unless another is given.

    Epochs are kept, so that the bytes of all of them can be counted.
    """
    ends: list[float] = []

    class Ends:
        def on_epoch(self, progress: ls.EpochProgress) -> None:
            if progress.rows_total:
                ends.append(time.perf_counter())

    pipeline = ls.Pipeline(
        "bench",
        checkpoint or folder / "lakestate",
        parallelism=subtasks,
        cache_dir=None if isinstance(checkpoint, ls.ParquetBackend) else folder / "lakestate-cache",
        retention=ls.RetentionPolicy(keep_epochs=1000),
    )
    build(pipeline)
    query = pipeline.start(trigger={"availableNow": True}, listeners=[Ends()], progress=False)
    query.awaitTermination()
    query.stop()
    return [(end - start) * 1000 for start, end in pairwise(ends)]


def spark_epochs(frame: DataFrame, folder: Path, mode: str) -> list[float]:
    """Milliseconds of the micro-batches of a query of Spark's."""
    writer = frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(folder))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    counted = [batch for batch in query.recentProgress if batch["numInputRows"]]
    return [float(batch["durationMs"]["triggerExecution"]) for batch in counted][1:]


def stateless_epochs(frames: list[tuple[DataFrame, str]], folder: Path, subtasks: int) -> list[float]:
    """Milliseconds of the same job without state: rows routed by key, and counted in Python."""
    ends: list[float] = []

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [sum(batch.num_rows for batch in batches)]})

    def run(batch: DataFrame, batch_id: int) -> None:
        target = sf.expr(subtask_sql("xxhash64(__key)", subtasks))
        batch.repartitionById(subtasks, target).mapInArrow(count, "n bigint").collect()
        ends.append(time.perf_counter())

    keyed = [frame.withColumn("__key", sf.col(key)) for frame, key in frames]
    both = keyed[0]
    for frame in keyed[1:]:
        both = both.unionByName(frame, allowMissingColumns=True)
    writer = both.writeStream.foreachBatch(run).option("checkpointLocation", str(folder))
    writer.trigger(availableNow=True).start().awaitTermination()
    return [(end - start) * 1000 for start, end in pairwise(ends)]
