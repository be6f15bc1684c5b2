"""What a job uses as it grows old: 1,000 small epochs, and how each resource looks along the way.

First the subtasks run in this process, over a store in memory that counts. The job has a keyed and a
replicated table and a sink, and all its keys are known after some epochs: whatever grows after that grows
without end. Then fewer epochs of a similar job on local Spark, of which
`make soak ARGS=tests/soak/test_soak_growth.py` runs 1,000.
"""

from __future__ import annotations

import resource
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakestate as ls
from benchmarks.bench_requests import Totals
from benchmarks.spark_growth import print_curve
from lakestate.testing.chained_job import ChainedJob
from lakestate.testing.counting import count_requests

EPOCHS = 1_000
SHOWN_EVERY = 100
SPARK_EPOCHS = 100
SPARK_SHOWN_EVERY = 20
SUBTASKS = 4
KEYS = 2_000
ROWS = 200
COLUMNS = (
    "epoch",
    "ms/epoch",
    "requests",
    "kB/epoch",
    "objects",
    "MB stored",
    "manifest",
    "cache",
    "threads",
    "MB memory",
)
GROWTH_MAX = 1.25
COMPARED = 3
"""Rows at the end that are compared with as many from the third on: runs of a merge tree come and go."""


def main() -> None:
    """Print the curve, and what grew."""
    with tempfile.TemporaryDirectory() as folder:
        rows = list(curve(Path(folder) / "cache"))
    early, late = (np.mean(part, axis=0) for part in (rows[2 : 2 + COMPARED], rows[-COMPARED:]))
    # Memory and times vary with the machine; the rest is counted.
    counts = list(zip(COLUMNS, early, late, strict=True))[2:-1]
    grown = [name for name, was, now in counts if now > GROWTH_MAX * was]
    print(f"grown by more than {GROWTH_MAX} after epoch {rows[2][0]:,.0f}: {', '.join(grown) or 'nothing'}")
    print(f"{SPARK_EPOCHS} epochs on local Spark:")
    print_curve(SPARK_EPOCHS, SPARK_SHOWN_EVERY)


def curve(cache: Path) -> Iterator[tuple[float, ...]]:
    """A row for every so many epochs: averages of an epoch, and what there is at their end."""
    backend = ls.ParquetBackend(f"memory://{uuid.uuid4().hex}", cache_dir=cache)
    counting = count_requests(backend)
    sink = ls.ParquetSink(f"memory://{uuid.uuid4().hex}", roll=ls.Roll(bytes="20kB"))
    job = ChainedJob(Totals(), backend, key="k", parallelism=SUBTASKS, sink=sink)
    random = np.random.default_rng(1)
    print("".join(f"{name:>11}" for name in COLUMNS))
    for done in range(SHOWN_EVERY, EPOCHS + 1, SHOWN_EVERY):
        started = time.perf_counter()
        for _ in range(SHOWN_EVERY):
            keys = random.choice(KEYS, ROWS, replace=False)
            job.epoch(pa.table({"k": keys, "n": np.ones(ROWS, dtype=np.int64)}))
        seconds, counted = time.perf_counter() - started, counting.take()
        stored = [*counting.inner.list()]
        # The median: a manifest also carries small output files that its epoch finished.
        manifest = np.median([info.size_bytes for info in stored if info.path.endswith("manifest.pb")])
        row = (
            done,
            seconds * 1000 / SHOWN_EVERY,
            counted.total / SHOWN_EVERY,
            counted.bytes_written / SHOWN_EVERY / 1000,
            len(stored),
            sum(info.size_bytes for info in stored) / 1e6,
            float(manifest),
            sum(1 for file in cache.iterdir() if file.is_file()),
            threading.active_count(),
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        )
        print("".join(f"{value:>11,.1f}" for value in row), flush=True)
        yield row


if __name__ == "__main__":
    main()
