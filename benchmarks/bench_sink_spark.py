"""The filesystem sink in a Spark stream against Spark's own Parquet file sink, in one run.

All contenders read the same Parquet files, one file per epoch, on `local[2]`, and write with the same codec
at the same level. Rounds alternate; times are medians over epochs without the first two of a round. The
processor time of the JVM and all Python processes is also given: other work on the machine affects it less.

    python -m benchmarks sink_spark
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import lakestate as ls
from benchmarks.local_spark import local_spark

EPOCHS = 7
EPOCH_ROWS = 1_000_000
ROUNDS = 2
WARM_UP = 2
SMALL_EPOCHS = 50
SMALL_ROWS = 20_000
RATIO_MIN = 1.0
FILES_MAX = 1 / 20
SCHEMA = "id bigint, user string, amount double, ts timestamp, country string"
POLL_S = 0.03
CPU_SAMPLE_S = 0.1
ZSTD_LEVEL = 3
"""The level that Spark uses."""

Run = Callable[[SparkSession, Path, Path, str], "Times"]
"""Takes a session, the input, a new folder and a codec. Returns how long the epochs took."""


class Times:
    """When epochs ended, in wall-clock time and in processor time of all processes that this one started."""

    def __init__(self) -> None:
        self._ends: list[tuple[float, float]] = []
        self._seconds: dict[tuple[int, float], float] = {}
        self._done = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    def epoch_ended(self) -> None:
        self._sample()
        self._ends.append((time.perf_counter(), sum(self._seconds.values())))

    def stop(self) -> Times:
        self._done.set()
        self._thread.join()
        return self

    @property
    def clock_ms(self) -> list[float]:
        """The duration of each epoch after the first ones."""
        return [(end[0] - start[0]) * 1000 for start, end in pairwise(self._ends[WARM_UP - 1 :])]

    @property
    def cpu_ms(self) -> float:
        """The average processor time of an epoch after the first ones."""
        first, last = self._ends[WARM_UP - 1], self._ends[-1]
        return (last[1] - first[1]) * 1000 / (len(self._ends) - WARM_UP)

    def _watch(self) -> None:
        # The processor time of a worker that has ended cannot be read, so keep the last value.
        while not self._done.wait(CPU_SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                used = process.cpu_times()
                self._seconds[process.pid, process.create_time()] = used.user + used.system


def main() -> None:
    spark = local_spark()
    ls.register(spark)
    with tempfile.TemporaryDirectory(prefix="lakestate-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _write_input(folder / "large", EPOCHS, EPOCH_ROWS)
        large_epochs(spark, folder, "zstd")
        _write_input(folder / "small", SMALL_EPOCHS, SMALL_ROWS)
        small_epochs(spark, folder)
    spark.stop()


def large_epochs(spark: SparkSession, folder: Path, codec: str) -> None:
    found: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    cpu: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for number in range(ROUNDS):
        # A later contender may find a busier disk, or a warmer JVM.
        for name in sorted(CONTENDERS, reverse=number % 2 == 1):
            times = CONTENDERS[name](spark, folder / "large", folder / f"{codec}-{number}-{name}", codec)
            found[name] += times.clock_ms
            cpu[name].append(times.cpu_ms)
    print(f"{EPOCH_ROWS:,} rows per epoch, {codec}, {ROUNDS} rounds of {EPOCHS} epochs, medians:")
    medians = {name: statistics.median(times) for name, times in found.items()}
    least = {name: min(times) for name, times in cpu.items()}
    for name, ms in medians.items():
        print(f"  {name:<16} {ms:6.0f} ms   {EPOCH_ROWS / ms:6.0f}k rows/s   {least[name]:6.0f} ms of CPU")
    for name in ("data source", "pipeline"):
        ratio = medians["Spark's own"] / medians[name]
        by_cpu = least["Spark's own"] / least[name]
        verdict = "reached" if ratio >= RATIO_MIN else "MISSED"
        print(
            f"  {name} / Spark's own: {ratio:.2f} x the rows/s ({by_cpu:.2f} x per CPU); "
            f"at least {RATIO_MIN}: {verdict}"
        )


def small_epochs(spark: SparkSession, folder: Path) -> None:
    counts: dict[str, int] = {}
    print(f"{SMALL_EPOCHS} epochs of {SMALL_ROWS:,} rows:")
    for name, run in CONTENDERS.items():
        target = folder / f"small-{name}"
        times = run(spark, folder / "small", target, "zstd")
        counts[name] = len(_visible(target / "out"))
        ms = statistics.median(times.clock_ms)
        print(f"  {name:<16} {counts[name]:4} files   {ms:6.0f} ms per epoch")
    for name in ("data source", "pipeline"):
        ratio = counts[name] / counts["Spark's own"]
        verdict = "reached" if ratio <= FILES_MAX else "MISSED"
        print(f"  {name} / Spark's own: {ratio:.3f} of the files; at most {FILES_MAX}: {verdict}")


def _sparks_own(spark: SparkSession, source: Path, folder: Path, codec: str) -> Times:
    writer = _input(spark, source).writeStream.format("parquet").option("compression", codec)
    writer = writer.option("path", str(folder / "out")).option("checkpointLocation", str(folder / "c"))
    return _batch_times(writer)


def _data_source(spark: SparkSession, source: Path, folder: Path, codec: str) -> Times:
    options = {"path": str(folder / "out"), "checkpointLocation": str(folder / "c"), "compression": codec}
    if codec == "zstd":
        options["compressionLevel"] = str(ZSTD_LEVEL)
    times = _batch_times(_input(spark, source).writeStream.format("lakestate").options(**options))
    ls.finish_files(**options)
    _check(folder / "out", source)
    return times


def _pipeline(spark: SparkSession, source: Path, folder: Path, codec: str) -> Times:
    times = Times()

    class Ends:
        def on_epoch(self, progress: object) -> None:
            times.epoch_ended()

    folder.mkdir(parents=True)
    level = ZSTD_LEVEL if codec == "zstd" else None
    sink = ls.ParquetSink(f"file://{folder}/out", compression=codec, compression_level=level)
    pipeline = ls.Pipeline("sink", f"file://{folder}/state", parallelism=2)
    pipeline.source(_input(spark, source)).sink("out", sink)
    query = pipeline.start(trigger={"availableNow": True}, listeners=[Ends()])
    query.awaitTermination()
    times.stop()
    query.stop(finish_files=True)
    _check(folder / "out", source)
    return times


CONTENDERS: dict[str, Run] = {
    "Spark's own": _sparks_own,
    "data source": _data_source,
    "pipeline": _pipeline,
}


def _batch_times(writer: Any) -> Times:
    times, seen = Times(), -1
    query = writer.trigger(availableNow=True).start()
    while not query.awaitTermination(POLL_S) or query.lastProgress["batchId"] > seen:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] > seen:
            seen = progress["batchId"]
            times.epoch_ended()
    return times.stop()


def _check(out: Path, source: Path) -> None:
    written = sum(pq.read_metadata(path).num_rows for path in _visible(out))
    given = sum(pq.read_metadata(path).num_rows for path in source.glob("*.parquet"))
    assert written == given, f"{written} of {given} rows"


def _visible(out: Path) -> list[Path]:
    return [path for path in out.rglob("*.parquet") if ".lakestate" not in path.parts]


def _input(spark: SparkSession, folder: Path) -> DataFrame:
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


if __name__ == "__main__":
    main()
