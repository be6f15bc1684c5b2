"""Ready operators against Spark's own stateful operators on RocksDB, and against the same job without state.

All contenders read the same files, one per epoch, on `local[2]`, in one run.

    python -m benchmarks operators
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import lakestate as ls
from benchmarks.epochs import (
    ROCKS_DB,
    Consume,
    lakestate_epochs,
    median_ms,
    read_epochs,
    spark_epochs,
    stateless_epochs,
    write_epochs,
)
from benchmarks.local_spark import local_spark

SUBTASKS = 4
START_US = 1_767_225_600_000_000
EPOCH_S = 10
"""Event time that passes in an epoch."""
SCHEMA = "id string, amount bigint, ts timestamp"


@dataclass(frozen=True)
class Case:
    """One question to all contenders."""

    title: str
    rows: int
    """Per epoch and source."""
    keys: int
    epochs: int
    ours: Callable[[list[Any]], Any]
    spark: Callable[[list[DataFrame]], DataFrame]
    at_least: float
    sources: int = 1
    mode: str = "append"
    spark_rows: int | None = None
    """Rows per epoch of Spark, if it cannot finish as many in reasonable time."""


CASES = [
    Case(
        "tumbling window: count and sum",
        rows=1_000_000,
        keys=100_000,
        epochs=8,
        ours=lambda streams: (
            streams[0]
            .key_by("id")
            .window(ls.Tumbling("10 seconds"))
            .aggregate("windows", n=ls.count(), total=ls.sum("amount"))
        ),
        spark=lambda frames: (
            frames[0]
            .groupBy(sf.window("ts", "10 seconds"), "id")
            .agg(sf.count("*").alias("n"), sf.sum("amount").alias("total"))
        ),
        at_least=4,
    ),
    Case(
        "session window, gap 5 s",
        rows=200_000,
        keys=100_000,
        epochs=8,
        ours=lambda streams: (
            streams[0].key_by("id").window(ls.Session("5 seconds")).aggregate("sessions", n=ls.count())
        ),
        spark=lambda frames: (
            frames[0].groupBy(sf.session_window("ts", "5 seconds"), "id").agg(sf.count("*").alias("n"))
        ),
        at_least=4,
    ),
    Case(
        "interval join within a minute",
        rows=200_000,
        keys=1_000_000,
        epochs=8,
        sources=2,
        ours=lambda streams: (
            streams[0]
            .key_by("id")
            .join(
                "joined",
                streams[1].key_by("id"),
                within=("0 seconds", "1 minute"),
                prefix=("l_", "r_"),
            )
        ),
        spark=lambda frames: (
            frames[0]
            .alias("l")
            .join(
                frames[1].alias("r"),
                sf.expr("l.id = r.id AND r.ts >= l.ts AND r.ts <= l.ts + INTERVAL 1 MINUTE"),
            )
        ),
        at_least=4,
    ),
    Case(
        "deduplication within a minute",
        rows=500_000,
        keys=5_000_000,
        epochs=8,
        ours=lambda streams: streams[0].key_by("id").deduplicate("once", within="1 minute"),
        spark=lambda frames: frames[0].dropDuplicatesWithinWatermark(["id"]),
        at_least=4,
    ),
    Case(
        "keyed function: running count and sum",
        rows=200_000,
        keys=200_000,
        epochs=6,
        spark_rows=50_000,
        ours=lambda streams: streams[0].key_by("id").process("totals", KeyedTotals()),
        spark=lambda frames: (
            frames[0].groupBy("id").transformWithState(RowTotals(), KeyedTotals.output, "update", "none")
        ),
        mode="update",
        at_least=20,
    ),
]


class KeyedTotals(ls.KeyedFunction):
    """The code per key."""

    output = "id string, n bigint, total bigint"
    n = ls.ValueState("bigint", default=0)
    total = ls.ValueState("bigint", default=0)

    def process(self, key: Any, rows: Any, state: Any) -> Any:
        """Count and sum up."""
        for row in rows:
            state.n += 1
            state.total += row.amount
        yield key, state.n, state.total


class RowTotals(StatefulProcessor):
    """The same code per key for Spark."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self.totals = handle.getValueState("totals", "n bigint, total bigint")

    def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Iterator[Any]:  # noqa: N802
        """Count and sum up."""
        n, total = self.totals.get() if self.totals.exists() else (0, 0)
        for row in rows:
            n, total = n + 1, total + row["amount"]
        self.totals.update((n, total))
        yield Row(id=key[0], n=n, total=total)

    def close(self) -> None:
        """Nothing to close."""


def main(only: str = "") -> None:
    """Run the cases whose title contains a text, and print a table."""
    spark = local_spark(
        {"spark.sql.shuffle.partitions": str(SUBTASKS), "spark.sql.adaptive.enabled": "false"} | ROCKS_DB
    )
    print(f"{'':42} {'Lakestate':>10} {'Spark':>10} {'no state':>10}   Spark/ours   ours/no state")
    for case in (case for case in CASES if only in case.title):
        with tempfile.TemporaryDirectory(prefix="lakestate-bench-", ignore_cleanup_errors=True) as name:
            measure(spark, case, Path(name))
    spark.stop()


def measure(spark: SparkSession, case: Case, folder: Path) -> None:
    """Run one case and print its row: thousands of rows per second, and ratios beside their bounds."""
    _write(folder / "in", case, case.rows)
    rows = case.rows * case.sources
    bare = median_ms(
        stateless_epochs([(frame, "id") for frame in _frames(spark, folder / "in", case)],
                         folder / "bare", SUBTASKS)
    )  # fmt: skip
    ours = median_ms(
        lakestate_epochs(folder, SUBTASKS, lambda pipeline: _build(spark, pipeline, folder, case))
    )
    theirs = _spark_ms(spark, case, folder)
    rate = [f"{rows / ms:9,.0f}k" for ms in (ours, theirs, bare)]
    print(
        f"{case.title:42} {rate[0]} {rate[1]} {rate[2]}   {theirs / ours:6.1f} (≥ {case.at_least:.0f})"
        f"   {ours / bare:6.2f} (≤ 1.5)",
        flush=True,
    )


def _spark_ms(spark: SparkSession, case: Case, folder: Path) -> float:
    """The time of Spark for as many rows as ours, from fewer rows where it is far slower."""
    source, scale = folder / "in", 1.0
    if case.spark_rows is not None:
        source, scale = folder / "few", case.rows / case.spark_rows
        _write(source, case, case.spark_rows, epochs=3)
    frames = [frame.withWatermark("ts", "2 seconds") for frame in _frames(spark, source, case)]
    return median_ms(spark_epochs(case.spark(frames), folder / "spark", case.mode)) * scale


def _build(spark: SparkSession, pipeline: ls.Pipeline, folder: Path, case: Case) -> None:
    frames = _frames(spark, folder / "in", case)
    streams = [
        pipeline.source(frame, name=f"source-{number}", event_time="ts", delay="2 seconds")
        for number, frame in enumerate(frames)
    ]
    case.ours(streams).apply("consume", Consume())


def _frames(spark: SparkSession, folder: Path, case: Case) -> list[DataFrame]:
    return [read_epochs(spark, folder / str(number), SCHEMA) for number in range(case.sources)]


def _write(folder: Path, case: Case, rows: int, epochs: int | None = None) -> None:
    for source in range(case.sources):
        table = partial(_rows, rows=rows, keys=case.keys, salt=source)
        write_epochs(folder / str(source), epochs or case.epochs, table)


def _rows(epoch: int, rows: int, keys: int, salt: int) -> pa.Table:
    rng = np.random.default_rng([epoch, salt])
    ids = pa.array(rng.integers(0, keys, rows))
    times = START_US + epoch * EPOCH_S * 1_000_000 + np.sort(rng.integers(0, EPOCH_S * 1_000_000, rows))
    return pa.table(
        {
            "id": pa.compute.binary_join_element_wise("key-", ids.cast(pa.string()), ""),
            "amount": rng.integers(0, 10_000, rows),
            "ts": pa.array(times).cast(pa.timestamp("us", tz="UTC")),
        }
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
