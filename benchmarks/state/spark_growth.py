"""What a job on local Spark uses as it grows old: small epochs from files, and each resource along the way.

The job has a keyed and a replicated table and a Parquet sink, and all its keys are known after some epochs:
whatever grows after that grows without end. Requests are counted in all processes. An input file is removed
some epochs after it was read, so that listing the input costs the same in each epoch.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import lakestate as ls
from benchmarks.spark_jobs.local_spark import local_spark
from benchmarks.state.bench_requests import Totals
from lakestate.storage.store import ObjectStore
from lakestate.testing.counting import CountingStore
from lakestate.testing.faults import Operation

SUBTASKS = 4
KEYS = 2_000
ROWS = 200
INPUT_KEPT = 20
EPOCH_TIMEOUT_S = 120
SPARK_LOGS = {
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.fileSource.log.cleanupDelay": "10s",
}
"""How long Spark keeps its own logs, which Lakestate does not need. By default it is 100 batches and, of what
the file source has read, ten minutes: whatever else grows would be hidden behind that."""
GROWTH_MAX = 1.25
COMPARED = 3
"""Samples at the end that are compared with as many from the second on: merged runs come and go."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Averages of an epoch, and what there is at the end of some epochs."""

    epoch: int
    ms: float
    requests: float
    objects: int
    stored_kb: float
    manifest_bytes: int
    cache_files: int
    spark_files: int
    """In Spark's own checkpoint directory."""
    spark_kb: float
    scratch_files: int
    """In Spark's directory for shuffles and blocks."""
    threads: int
    """Of the driver, in Python and in the JVM; and so are descriptors and memory."""
    descriptors: int
    python_mb: float
    heap_mb: float
    """What the JVM uses after a collection."""

    def shown(self) -> str:
        """One line of the curve."""
        return "".join(f"{getattr(self, field.name):>15,.0f}" for field in fields(self))


COUNTED = (
    "requests",
    "objects",
    "stored_kb",
    "manifest_bytes",
    "cache_files",
    "spark_files",
    "scratch_files",
    "threads",
    "descriptors",
)
"""What does not depend on the machine."""


def grown(samples: list[Sample]) -> dict[str, tuple[float, float]]:
    """What is never as small at the end as it was on average at the beginning.

    Spark removes files of shuffles when the JVM collects garbage: in between there may be many.
    """
    early, late = samples[1 : 1 + COMPARED], samples[-COMPARED:]
    found = {}
    for name in COUNTED:
        was = float(np.mean([getattr(each, name) for each in early]))
        now = float(min(getattr(each, name) for each in late))
        if now > GROWTH_MAX * was + 8:
            found[name] = (was, now)
    return found


class TallyingStore(CountingStore):
    """Appends a byte to a file for each request, so that those of all processes are counted."""

    def __init__(self, inner: ObjectStore, tally: Path) -> None:
        super().__init__(inner)
        self._tally = os.open(tally, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def count(
        self, operation: Operation, path: str, *, times: int = 1, read: int = 0, written: int = 0
    ) -> None:
        """Count requests for an object."""
        os.write(self._tally, b"." * times)


class TallyingBackend(ls.ParquetBackend):
    """A backend whose requests are counted wherever it travels."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "state").mkdir(exist_ok=True)
        super().__init__(f"file://{folder / 'state'}", cache_dir=folder / "cache")

    def __reduce__(self) -> tuple[object, ...]:
        return TallyingBackend, (self.folder,)

    @cached_property
    def _store(self) -> ObjectStore:
        return TallyingStore(super()._store, self.tally)

    @property
    def tally(self) -> Path:
        """The file with a byte for each request."""
        return self.folder / "requests"


class GrowingJob:
    """A running query, which is fed one file at a time."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._backend = TallyingBackend(folder)
        self._ends: Queue[ls.EpochProgress] = Queue()
        self._fed = 0
        self._random = np.random.default_rng(1)
        (folder / "in").mkdir()
        stream = spark.readStream.schema("k bigint, n bigint").parquet(str(folder / "in"))
        pipeline = ls.Pipeline("growing", self._backend, parallelism=SUBTASKS)
        (
            pipeline.source(stream)
            .key_by("k")
            .apply("totals", Totals())
            .sink("out", ls.ParquetSink(f"file://{folder / 'out'}", roll=ls.Roll(bytes="20kB")))
        )
        self._query = pipeline.start(listeners=[self], spark_checkpoint=folder / "spark", progress=False)

    def on_epoch(self, progress: ls.EpochProgress) -> None:
        """An epoch is committed."""
        self._ends.put(progress)

    def run(self, epochs: int) -> Sample:
        """Run some epochs, and look."""
        requests = self._requests()
        started = time.perf_counter()
        for _ in range(epochs):
            self._feed()
            newest = self._ends.get(timeout=EPOCH_TIMEOUT_S)
        seconds = time.perf_counter() - started
        return self._look(int(newest.epoch), seconds * 1000 / epochs, (self._requests() - requests) / epochs)

    def stop(self) -> None:
        """Stop the query."""
        self._query.stop()

    def _feed(self) -> None:
        keys = self._random.choice(KEYS, ROWS, replace=False)
        hidden = self._folder / "in" / ".next"
        pq.write_table(pa.table({"k": keys, "n": np.ones(ROWS, dtype=np.int64)}), hidden)
        hidden.rename(self._input(self._fed))
        self._input(self._fed - INPUT_KEPT).unlink(missing_ok=True)
        self._fed += 1

    def _input(self, number: int) -> Path:
        return self._folder / "in" / f"{number:06d}.parquet"

    def _requests(self) -> int:
        return self._backend.tally.stat().st_size

    def _look(self, epoch: int, ms: float, requests: float) -> Sample:
        jvm: Any = self._spark._jvm
        # Spark removes files of shuffles when what refers to them is collected.
        jvm.java.lang.System.gc()
        runtime = jvm.java.lang.Runtime.getRuntime()
        stored, own = _sizes(self._folder / "state"), _sizes(self._folder / "spark")
        manifests = [path for path in stored if path.name == "manifest.pb"]
        jvm_process = Path("/proc") / str(jvm.java.lang.ProcessHandle.current().pid())
        return Sample(
            epoch=epoch,
            ms=ms,
            requests=requests,
            objects=len(stored),
            stored_kb=sum(stored.values()) / 1e3,
            # The median: a manifest also carries small output files that its epoch finished.
            manifest_bytes=int(np.median([stored[path] for path in manifests])),
            # Without those of locks, of which there are at most 4,096.
            cache_files=sum(1 for path in (self._folder / "cache").iterdir() if path.is_file()),
            spark_files=len(own),
            spark_kb=sum(own.values()) / 1e3,
            scratch_files=len(_sizes(self._folder / "scratch")),
            threads=threading.active_count() + _count(jvm_process / "task"),
            descriptors=_count(Path("/proc/self/fd")) + _count(jvm_process / "fd"),
            python_mb=_resident_mb(),
            heap_mb=(runtime.totalMemory() - runtime.freeMemory()) / 1e6,
        )


def print_curve(epochs: int, shown_every: int) -> list[Sample]:
    """Run so many epochs on a Spark of their own, and print a line for every few of them."""
    with tempfile.TemporaryDirectory(prefix="lakestate-growth-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        spark = local_spark({**SPARK_LOGS, "spark.local.dir": str(folder / "scratch")})
        try:
            job = GrowingJob(spark, folder)
            print("".join(f"{field.name:>15}" for field in fields(Sample)), flush=True)
            try:
                return list(_samples(job, epochs, shown_every))
            finally:
                job.stop()
        finally:
            spark.stop()


def _samples(job: GrowingJob, epochs: int, shown_every: int) -> Iterator[Sample]:
    for _ in range(0, epochs, shown_every):
        sample = job.run(shown_every)
        print(sample.shown(), flush=True)
        yield sample


def _sizes(folder: Path) -> dict[Path, int]:
    found = {}
    for parent, _, names in os.walk(folder):
        for path in (Path(parent) / name for name in names):
            # Files come and go while they are counted.
            try:
                found[path] = path.stat().st_size
            except FileNotFoundError:
                continue
    return found


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
