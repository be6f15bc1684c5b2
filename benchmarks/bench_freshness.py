"""How soon rows can be read, in how many files, for how many bytes: `Roll(visible=…)` and Spark's file sink.

Rows arrive all the time, a small file every half second, each with the time at which it was written. All
contenders have the same trigger. The freshness of a row is the time from then until the commit with which
readers see it: of a snapshot of the table, or of a batch in Spark's log of its sink.

    python -m benchmarks freshness
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import lakestate as ls
from benchmarks.local_spark import local_spark
from lakestate.sinks import IcebergSink

TRIGGER = "2 seconds"
RUN_S = 36
FEED_S = 0.5
FILE_ROWS = 2_000
SCHEMA = "id bigint, user string, amount double, ts timestamp"

Seen = list[tuple[Path, float]]
"""Files, and the second at which readers saw them."""


def feed(folder: Path, over: Event) -> None:
    """Write rows until it is over."""
    folder.mkdir()
    random, number = np.random.default_rng(5), 0
    while not over.wait(FEED_S):
        rows = {
            "id": np.arange(number * FILE_ROWS, (number + 1) * FILE_ROWS),
            "user": pa.array(random.integers(0, 1 << 40, FILE_ROWS)).cast(pa.string()),
            "amount": random.random(FILE_ROWS),
            "ts": pa.array([datetime.now(UTC)] * FILE_ROWS, pa.timestamp("us", "UTC")),
        }
        pq.write_table(pa.table(rows), folder / f".{number}.tmp")
        (folder / f".{number}.tmp").rename(folder / f"{number:06d}.parquet")
        number += 1


@contextmanager
def fed_stream(spark: SparkSession, folder: Path) -> Iterator[DataFrame]:
    over = Event()
    thread = Thread(target=feed, args=(folder / "in", over), daemon=True)
    thread.start()
    while not (folder / "in").exists():
        time.sleep(0.01)
    yield spark.readStream.schema(SCHEMA).parquet(str(folder / "in"))
    over.set()
    thread.join()


def run_lakestate(roll: ls.Roll) -> Callable[[SparkSession, Path], tuple[Seen, list[Path]]]:
    def run(spark: SparkSession, folder: Path) -> tuple[Seen, list[Path]]:
        sink = IcebergSink("shop.events", catalog=f"file://{folder}/warehouse", roll=roll)
        with fed_stream(spark, folder) as events:
            pipeline = ls.Pipeline("fresh", f"file://{folder}/checkpoints", parallelism=2, idle=TRIGGER)
            pipeline.source(events).sink("out", sink)
            query = pipeline.start(trigger={"processingTime": TRIGGER})
            query.awaitTermination(RUN_S)
        query.stop(finish_files=True)
        table = sink.load_table()
        seen = [
            (_path(entry.data_file.file_path), snapshot.timestamp_ms / 1000)
            for snapshot in table.metadata.snapshots
            if snapshot.summary.operation.value == "append"
            for manifest in snapshot.manifests(table.io)
            for entry in manifest.fetch_manifest_entry(table.io)
            if entry.snapshot_id == snapshot.snapshot_id
        ]
        return seen, [_path(task.file.file_path) for task in table.scan().plan_files()]

    return run


def run_spark(spark: SparkSession, folder: Path) -> tuple[Seen, list[Path]]:
    with fed_stream(spark, folder) as events:
        query = (
            events.repartition(2)
            .writeStream.format("parquet")
            .option("path", str(folder / "out"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(processingTime=TRIGGER)
            .start()
        )
        query.awaitTermination(RUN_S)
        query.processAllAvailable()
    query.stop()
    seen: Seen = []
    for log in (folder / "out" / "_spark_metadata").iterdir():
        if log.name.isdecimal():
            entries = [json.loads(line) for line in log.read_text().splitlines()[1:]]
            seen += [(_path(entry["path"]), log.stat().st_mtime) for entry in entries]
    return seen, [path for path, _ in seen]


def _path(location: str) -> Path:
    return Path("/" + location.removeprefix("file:").lstrip("/"))


def freshness_s(seen: Seen) -> Any:
    """The freshness of each row. Those of the first seconds wait for Spark to start, and do not count."""
    tables = [(pq.read_table(path, columns=["ts"])["ts"], at_s) for path, at_s in seen]
    times = [(np.asarray(column.cast(pa.int64())) / 1e6, at_s) for column, at_s in tables]
    first = min(each.min() for each, _ in times) + 10
    return np.concatenate([at_s - each[each > first] for each, at_s in times])


CONTENDERS: dict[str, Callable[[SparkSession, Path], tuple[Seen, list[Path]]]] = {
    f"Roll(interval='5 minutes', visible='{TRIGGER}')": run_lakestate(ls.Roll(visible=TRIGGER)),
    "Roll(interval='12 seconds')": run_lakestate(ls.Roll(interval="12 seconds")),
    "Spark's file sink": run_spark,
}


def main() -> None:
    """Run each contender once."""
    spark = local_spark({"spark.python.daemon.module": "lakestate.spark.python_daemon"})
    print(f"{FILE_ROWS / FEED_S:,.0f} rows/s for {RUN_S} s, trigger {TRIGGER}")
    for name, run in CONTENDERS.items():
        folder = Path(tempfile.mkdtemp(prefix="bench-freshness-"))
        try:
            seen, live = run(spark, folder)
            freshness = freshness_s(seen)
            written = sum(path.stat().st_size for path in {*live, *(path for path, _ in seen)})
            held = sum(path.stat().st_size for path in live)
            middle, late = np.quantile(freshness, [0.5, 0.99])
            print(
                f"{name}: readable after p50 {middle:.1f} s, p99 {late:.1f} s; {len(live)} files at the end, "
                f"{written / 1e6:.1f} MB written, {held / 1e6:.1f} MB of them in these",
                flush=True,
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)
