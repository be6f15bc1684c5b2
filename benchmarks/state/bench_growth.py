"""What a job uses as it grows old: many small epochs, and how each resource looks along the way."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakestate as ls
from benchmarks.core import Benchmark, Contender, Point, Question, Run, at_most
from benchmarks.state.bench_requests import Totals
from benchmarks.state.spark_growth import print_curve
from lakestate.testing.chained_job import ChainedJob
from lakestate.testing.counting import count_requests

SHOWN_EVERY = 50
SPARK_SHOWN_EVERY = 20
SUBTASKS = 4
KEYS = 2_000
ROWS = 200
GROWTH_MAX = 1.25
COMPARED = 3
"""Samples at the end that are compared with as many from the third on: runs of a merge tree come and go."""
OURS, SPARK, EPOCH = "subtasks in this process", "local Spark", "epochs"
WHAT = {
    "requests": ("Requests of an epoch", "requests"),
    "objects": ("Objects in the store", "objects"),
    "stored": ("Bytes in the store", "bytes"),
    "manifest": ("Bytes of a manifest", "bytes"),
    "cached": ("Files in the host's cache", "files"),
    "threads": ("Threads of the driver", "threads"),
}
"""What does not depend on the machine's speed, by the name of its question."""
FIELDS = {
    "requests": "requests",
    "objects": "objects",
    "stored": "stored_kb",
    "manifest": "manifest_bytes",
    "cached": "cache_files",
    "threads": "threads",
}
"""The same as fields of a sample on Spark."""

BENCHMARK = Benchmark(
    name="growth",
    title="A job that grows old",
    text=(
        "Small epochs of a job with a keyed and a replicated table and a Parquet sink. All its keys are "
        "known after some epochs: whatever grows after that grows without end. `make soak "
        "ARGS=tests/soak/test_soak_growth.py` runs 1,000 epochs on Spark."
    ),
    contenders=(
        Contender(OURS, f"{SUBTASKS} subtasks over a store in memory that counts, all defaults"),
        Contender(SPARK, f"{SUBTASKS} subtasks on `local[2]`, files on the local disk, all defaults"),
    ),
    questions=(
        *(Question(name, f"{title}, by epochs", unit, axis=EPOCH) for name, (title, unit) in WHAT.items()),
        Question(
            "grown",
            "What the last samples have more of than early ones",
            "times",
            text="The mean of the last three samples, divided by that of three early ones.",
            aims=tuple(
                at_most(
                    GROWTH_MAX,
                    f"{title.lower()}, at the end against early",
                    Point(OURS, {"what": name}),
                    in_readme=False,
                    why="something grows with the age of the job.",
                )
                for name, (title, _) in WHAT.items()
            ),
        ),
    ),
    seconds=(20, 75),
)


def measure(run: Run) -> None:
    with run.folder() as folder:
        samples = list(curve(run, folder / "cache", run.pick(whole=600, quick=300)))
    for name in WHAT:
        early, late = (
            float(np.mean([sample[name] for sample in part]))
            for part in (samples[2 : 2 + COMPARED], samples[-COMPARED:])
        )
        run.record("grown", OURS, [late / early], {"what": name})
    run.say("on local Spark")
    for sample in print_curve(run.pick(whole=60, quick=20), SPARK_SHOWN_EVERY):
        for name, field in FIELDS.items():
            scale = 1000 if name == "stored" else 1
            run.record(name, SPARK, [getattr(sample, field) * scale], {EPOCH: sample.epoch})


def curve(run: Run, cache: Path, epochs: int) -> Iterator[dict[str, float]]:
    """A sample for every so many epochs: averages of an epoch, and what there is at their end."""
    backend = ls.ParquetBackend(f"memory://{uuid.uuid4().hex}", cache_dir=cache)
    counting = count_requests(backend)
    sink = ls.ParquetSink(f"memory://{uuid.uuid4().hex}", roll=ls.Roll(bytes="20kB"))
    job = ChainedJob(Totals(), backend, key="k", parallelism=SUBTASKS, sink=sink)
    random = np.random.default_rng(1)
    for done in range(SHOWN_EVERY, epochs + 1, SHOWN_EVERY):
        run.say(f"epoch {done} of {epochs}")
        for _ in range(SHOWN_EVERY):
            keys = random.choice(KEYS, ROWS, replace=False)
            job.epoch(pa.table({"k": keys, "n": np.ones(ROWS, dtype=np.int64)}))
        stored = [*counting.inner.list()]
        # The median: a manifest also carries small output files that its epoch finished.
        manifest = np.median([info.size_bytes for info in stored if info.path.endswith("manifest.pb")])
        sample = {
            "requests": counting.take().total / SHOWN_EVERY,
            "objects": len(stored),
            "stored": sum(info.size_bytes for info in stored),
            "manifest": float(manifest),
            "cached": sum(1 for file in cache.iterdir() if file.is_file()),
            "threads": threading.active_count(),
        }
        for name, value in sample.items():
            run.record(name, OURS, [value], {EPOCH: done})
        yield sample
