"""Running count and sum per key on Spark: Lakestate, Spark's own state, and the bare job, in one run.

All contenders read the same Parquet files, one file per epoch, on `local[2]`. Times are medians over
epochs without the first two. `transformWithState` is measured on a size that it can finish.

    python -m benchmarks spark
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import lakestate as ls
from benchmarks.local_spark import local_spark
from lakestate.protocol.key_ranges import subtask_sql

SUBTASKS = 4
WARM_UP = 2
ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SCHEMA = "user bigint, amount double"


class Totals(ls.Operator):
    """The same totals as Spark's `groupBy().agg()`."""

    input = SCHEMA
    output = "user bigint, n bigint, spend double"
    totals = ls.KeyedTable(key="user bigint", value="n bigint, spend double")

    def process_batch(self, batch: pa.RecordBatch, ctx: ls.OperatorContext) -> Iterator[pa.Table]:
        new = pa.table(batch).group_by("user").aggregate([("amount", "count"), ("amount", "sum")])
        old = ctx.totals.get(new)
        rows = pa.table(
            {
                "user": new["user"],
                "n": pc.add(new["amount_count"], old["n"].fill_null(0)),
                "spend": pc.add(new["amount_sum"], old["spend"].fill_null(0.0)),
            }
        )
        ctx.totals.put(rows)
        yield from ()


def main() -> None:
    spark = local_spark(
        {
            "spark.sql.shuffle.partitions": str(SUBTASKS),
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.streaming.stateStore.providerClass": ROCKS_DB,
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        }
    )
    with tempfile.TemporaryDirectory(prefix="lakestate-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        large_epochs(spark, folder / "large")
        small_epochs(spark, folder / "small")
        row_by_row(spark, folder / "rows")
        restart(spark, folder / "restart")
    spark.stop()


def large_epochs(spark: SparkSession, folder: Path, epochs: int = 9, rows: int = 1_000_000) -> None:
    _write_input(folder / "in", epochs, rows, keys=2_000_000)
    floor_ms = _median(_bare(spark, folder, SUBTASKS))
    ours, bytes_ours = _lakestate(spark, folder, SUBTASKS)
    aggregated, bytes_spark = _run_aggregation(spark, folder)
    ours_ms, spark_ms = _median(ours), _median(aggregated)
    print(f"{rows:,} rows per epoch, 2,000,000 keys, {SUBTASKS} subtasks:")
    for label, ms in (
        ("route and count", floor_ms),
        ("Lakestate", ours_ms),
        ("groupBy on RocksDB", spark_ms),
    ):
        print(f"  {label:20} {ms:7.0f} ms   {rows / ms:6.0f}k rows/s")
    print(f"  Lakestate / route and count:    {ours_ms / floor_ms:.2f} (aim: at most 1.35)")
    print(f"  groupBy on RocksDB / Lakestate: {spark_ms / ours_ms:.2f} (aim: at least 3)")
    print(
        f"  state written per epoch: Lakestate {bytes_ours / 1e6:.1f} MB, merges included; "
        f"RocksDB changelog and snapshots {bytes_spark / 1e6:.1f} MB: "
        f"{bytes_ours / bytes_spark:.2f} (aim: at most 1)"
    )


def small_epochs(spark: SparkSession, folder: Path, epochs: int = 22) -> None:
    _write_input(folder / "in", epochs, 1000, keys=100_000)
    bare_ms = _median(_bare(spark, folder, 2))
    ours_ms = _median(_lakestate(spark, folder, 2)[0])
    print(f"1,000 rows per epoch, 2 subtasks: bare {bare_ms:.0f} ms, Lakestate {ours_ms:.0f} ms")
    print(f"  ratio {ours_ms / bare_ms:.2f} (aim: at most 1.3)")


def row_by_row(spark: SparkSession, folder: Path, rows: int = 100_000) -> None:
    """The contenders run one epoch of this size after a small one, because each takes a minute."""
    _write_input(folder / "in", 1, 2000, keys=2 * rows)
    _write_input(folder / "in", 1, rows, keys=2 * rows, first=1)
    _write_input(folder / "ours" / "in", 7, rows, keys=2 * rows)
    ours_ms = _median(_lakestate(spark, folder / "ours", SUBTASKS)[0])
    print(f"{rows:,} rows per epoch, {2 * rows:,} keys:")
    print(f"  Lakestate                   {rows / ours_ms:8.1f}k rows/s")
    contenders = {
        "transformWithState": lambda frame: frame.groupBy("user").transformWithState(
            _RowTotals(), Totals.output, "update", "none"
        ),
        "transformWithStateInPandas": lambda frame: frame.groupBy("user").transformWithStateInPandas(
            _PandasTotals(), Totals.output, "update", "none"
        ),
    }
    for name, built in contenders.items():
        ms = _native(spark, folder, name, built)[1]
        times = ms / ours_ms
        print(f"  {name:27} {rows / ms:8.1f}k rows/s   Lakestate: {times:.0f} x (aim: at least 50)")


def restart(spark: SparkSession, folder: Path, keys: int = 5_000_000) -> None:
    """Time from `start()` to the end of one epoch of a few rows, with all keys in state."""
    _write_input(folder / "in", 5, keys // 5, keys=keys, distinct=True)
    _lakestate(spark, folder, SUBTASKS)
    _run_aggregation(spark, folder)
    _write_input(folder / "in", 1, 1000, keys=keys, first=5)
    shutil.rmtree(folder / "cache")
    cold_s = _seconds(lambda: _lakestate(spark, folder, SUBTASKS))
    rocks_s = _seconds(lambda: _run_aggregation(spark, folder))
    _write_input(folder / "in", 1, 1000, keys=keys, first=6)
    warm_s = _seconds(lambda: _lakestate(spark, folder, SUBTASKS))
    print(f"restart with {keys:,} keys to the end of an epoch of 1,000 rows:")
    print(f"  Lakestate without its cache {cold_s:.1f} s, with it {warm_s:.1f} s")
    print(f"  groupBy on RocksDB {rocks_s:.1f} s: {rocks_s / cold_s:.1f} x (aim: at least 1)")


def _write_input(
    folder: Path, files: int, rows: int, *, keys: int, distinct: bool = False, first: int = 0
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + files):
        rng = np.random.default_rng(number)
        users = np.arange(number * rows, (number + 1) * rows) if distinct else rng.integers(0, keys, rows)
        table = pa.table({"user": users, "amount": rng.random(rows)})
        pq.write_table(table, folder / f"{number:05d}.parquet")
        os.utime(folder / f"{number:05d}.parquet", (1_700_000_000 + number, 1_700_000_000 + number))


def _input(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder / "in"))


def _bare(spark: SparkSession, folder: Path, subtasks: int) -> list[float]:
    """The same routing, followed only by counting."""
    ends: list[float] = []

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [sum(batch.num_rows for batch in batches)]})

    def run(batch: DataFrame, batch_id: int) -> None:
        target = sf.expr(subtask_sql("xxhash64(user)", subtasks))
        batch.repartitionById(subtasks, target).mapInArrow(count, "n bigint").collect()
        ends.append(time.perf_counter())

    writer = _input(spark, folder).writeStream.foreachBatch(run)
    writer = writer.option("checkpointLocation", str(folder / "bare"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return [(end - start) * 1000 for start, end in pairwise(ends)]


def _lakestate(spark: SparkSession, folder: Path, subtasks: int) -> tuple[list[float], float]:
    """Times between the ends of epochs, and the average bytes of state that an epoch wrote."""
    ends: list[float] = []

    class Ends:
        def on_epoch(self, progress: object) -> None:
            ends.append(time.perf_counter())

    (folder / "state").mkdir(exist_ok=True)
    backend = ls.ParquetBackend(f"file://{folder / 'state'}", cache_dir=folder / "cache")
    pipeline = ls.Pipeline(
        "totals", backend, parallelism=subtasks, retention=ls.RetentionPolicy(keep_epochs=1000)
    )
    pipeline.source(_input(spark, folder)).key_by("user").apply("totals", Totals())
    query = pipeline.start(trigger={"availableNow": True}, listeners=[Ends()])
    query.awaitTermination()
    query.stop()
    return [(end - start) * 1000 for start, end in pairwise(ends)], _bytes(folder / "state") / max(
        1, len(ends)
    )


def _run_aggregation(spark: SparkSession, folder: Path) -> tuple[list[float], float]:
    def aggregate(frame: DataFrame) -> DataFrame:
        return frame.groupBy("user").agg(sf.count("*").alias("n"), sf.sum("amount").alias("spend"))

    times = _native(spark, folder, "aggregated", aggregate)
    return times, _bytes(folder / "aggregated" / "state") / max(1, len(times))


def _native(
    spark: SparkSession, folder: Path, name: str, build: Callable[[DataFrame], DataFrame]
) -> list[float]:
    writer = build(_input(spark, folder)).writeStream.format("noop").outputMode("update")
    writer = writer.option("checkpointLocation", str(folder / name))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [float(batch["durationMs"]["triggerExecution"]) for batch in query.recentProgress]


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _median(times_ms: list[float]) -> float:
    return statistics.median(times_ms[WARM_UP:])


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


class _RowTotals(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "n bigint, spend double")

    def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Iterator[Any]:  # noqa: N802
        from pyspark.sql import Row

        n, spend = self.total.get() if self.total.exists() else (0, 0.0)
        for row in rows:
            n, spend = n + 1, spend + row["amount"]
        self.total.update((n, spend))
        yield Row(user=key[0], n=n, spend=spend)

    def close(self) -> None:
        pass


class _PandasTotals(_RowTotals):
    def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Iterator[Any]:  # noqa: N802
        n, spend = self.total.get() if self.total.exists() else (0, 0.0)
        for frame in rows:
            n, spend = n + len(frame), spend + float(frame["amount"].sum())
        self.total.update((n, spend))
        yield pd.DataFrame({"user": [key[0]], "n": [n], "spend": [spend]})


if __name__ == "__main__":
    main()
