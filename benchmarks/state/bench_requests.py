"""What an epoch asks of an object store, at 4 to 256 subtasks, and what that costs in a month.

The subtasks run in this process, one after the other, over a store that counts. Every subtask changes
keyed state and an output file in every epoch, and every fourth also writes to a replicated table.
Retention, merges and clean-up are in the average. Then a smaller job runs on an S3 server, and Spark's own
state beside it: see `s3_requests`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakestate as ls
from benchmarks.core import Benchmark, Contender, Point, Question, Run, Unavailable, at_most
from benchmarks.state.s3_requests import (
    PARTITIONS,
    SPARK,
    SPARK_SETTINGS,
    dollars_a_month,
    find_connector,
    measure_epochs,
)
from lakestate.testing.chained_job import ChainedJob
from lakestate.testing.counting import RequestCount, count_requests

SUBTASKS = (4, 16, 64, 256)
WARM_UP_EPOCHS = 12
EPOCHS = 12
ROWS_PER_SUBTASK = 16
KEYS = 1_000_000
CONSTANT_MAX = 15
COUNTS = ("writes", "reads", "lists", "deletes")
LAKESTATE = "Lakestate"
FEW_KEYS, FEW_SUBTASKS, FEW_BYTES_MAX = 10, 16, 40_000
FILL_ROWS = 1_000_000


def _writes_max(parallelism: int) -> float:
    """Each changed table is a write, and so is the metadata of each changed subtask."""
    return 2 * 2 * parallelism + parallelism / 4 + CONSTANT_MAX


def _reads_max(parallelism: int) -> float:
    """To verify metadata, and to merge the files of the replicated table."""
    return 2 * parallelism + parallelism / 4 + CONSTANT_MAX


BENCHMARK = Benchmark(
    name="requests",
    title="Requests to the object store",
    text=(
        "An operator with a keyed and a replicated table, and a sink. Every subtask of both changes "
        "something in every epoch, and every fourth subtask writes to the replicated table. Retention, "
        "merges and clean-up are in the average of 12 epochs."
    ),
    contenders=(
        *(Contender(name, f"{name} of an epoch, all defaults") for name in COUNTS),
        Contender(LAKESTATE, "all defaults"),
        Contender(SPARK, SPARK_SETTINGS),
    ),
    questions=(
        Question(
            "requests",
            "Requests of an epoch, by subtasks",
            "requests",
            axis="subtasks",
            aims=tuple(
                at_most(
                    bound(parallelism),
                    f"{name} with {parallelism} subtasks",
                    Point(name, {"subtasks": parallelism}),
                    in_readme=False,
                )
                for parallelism in SUBTASKS
                for name, bound in (("writes", _writes_max), ("reads", _reads_max))
            ),
        ),
        Question("bytes", "Bytes that an epoch writes, by subtasks", "bytes", axis="subtasks"),
        Question(
            "price",
            "Dollars a month for requests, by subtasks",
            "dollars",
            axis="subtasks",
            text="One epoch in 10 seconds, at the prices of S3 Standard; deletions cost nothing.",
        ),
        Question(
            "few-keys",
            f"Bytes that an epoch writes which changed {FEW_KEYS} keys, by keys in state",
            "bytes",
            axis="keys",
            text=f"{FEW_SUBTASKS} subtasks with one keyed table; metadata, manifest and merges included.",
            aims=(
                at_most(
                    FEW_BYTES_MAX,
                    f"{FEW_KEYS} changed keys of 10M",
                    Point(LAKESTATE, {"keys": 10_000_000}),
                    in_readme=False,
                ),
            ),
        ),
        Question(
            "s3-requests",
            "Requests of an epoch on S3, by partitions",
            "requests",
            axis="partitions",
            text=(
                "Running totals of 1,000 rows per epoch, 100,000 keys, without a sink, counted in front of "
                "one S3 server. Spark's snapshots and its search for old versions, which it does by the "
                "clock, are in the average as often as with epochs of 10 seconds."
            ),
        ),
        Question("s3-bytes", "Bytes that an epoch writes to S3, by partitions", "bytes", axis="partitions"),
        Question(
            "s3-price",
            "Dollars a month for requests to S3, by partitions",
            "dollars",
            axis="partitions",
            text="One epoch in 10 seconds, as above.",
            aims=tuple(
                at_most(
                    1.0,
                    f"dollars for requests with {partitions} partitions, against Spark's RocksDB state",
                    Point(LAKESTATE, {"partitions": partitions}),
                    Point(SPARK, {"partitions": partitions}),
                    in_readme=False,
                )
                for partitions in PARTITIONS
            ),
        ),
    ),
    seconds=(60, 400),
)


class Totals(ls.Operator):
    """Running totals. Every fourth subtask also writes what all subtasks read."""

    output = "k bigint, n bigint"
    totals = ls.KeyedTable(key="k bigint", value="n bigint")
    newest = ls.GlobalKeyedTable(key=int, value=int)

    def process_batch(self, batch: pa.RecordBatch, ctx: ls.OperatorContext) -> Iterator[pa.Table]:
        """Add the rows to what is known."""
        old = ctx.totals.get(batch)
        rows = pa.table({"k": batch["k"], "n": pc.add(batch["n"], old["n"].fill_null(0))})
        ctx.totals.put(rows)
        if ctx.task.subtask_index % 4 == 0:
            ctx.newest.insert(ctx.task.subtask_index, batch["k"][0].as_py())
        yield rows


def measure(run: Run) -> None:
    """Count in this process, then on S3."""
    measure_subtasks(run)
    measure_few_keys(run)
    measure_s3(run)


def measure_subtasks(run: Run) -> None:
    """Count at each parallelism."""
    with run.folder() as folder:
        for parallelism in run.pick(whole=SUBTASKS, quick=SUBTASKS[:2]):
            run.say(f"{parallelism} subtasks")
            counted, here = count_epochs(parallelism, folder), {"subtasks": parallelism}
            for name in COUNTS:
                run.record("requests", name, [getattr(counted, name) / EPOCHS], here)
            run.record("bytes", LAKESTATE, [counted.bytes_written / EPOCHS], here)
            run.record("price", LAKESTATE, [monthly_price(counted)], here)


def measure_few_keys(run: Run) -> None:
    """Count bytes at each size of the state."""
    with run.folder() as folder:
        for keys in run.pick(whole=(100_000, 1_000_000, 10_000_000), quick=(100_000,)):
            run.say(f"{FEW_KEYS} changed keys of {keys:,}")
            run.record("few-keys", LAKESTATE, bytes_of_few_keys(keys, folder), {"keys": keys})


def measure_s3(run: Run) -> None:
    """Count what arrives at an S3 server, from a pipeline and from Spark."""
    try:
        connector = find_connector()
    except Unavailable as reason:
        for question in ("s3-requests", "s3-bytes", "s3-price"):
            run.leave_out(question, SPARK, str(reason))
        connector = None
    for cost in measure_epochs(run.pick(whole=PARTITIONS, quick=PARTITIONS[:1]), connector, run.say):
        contender, here = SPARK if cost.is_spark else LAKESTATE, {"partitions": cost.partitions}
        for kind, count in cost.requests.items():
            run.record("s3-requests", contender, [count], {**here, "requests": kind})
        run.record("s3-bytes", contender, [cost.written_bytes], here)
        run.record("s3-price", contender, [cost.monthly_price], here)


class KeyedTotals(ls.Operator):
    """Running totals, and nothing else."""

    totals = ls.KeyedTable(key="k bigint", value="n bigint")

    def process_batch(self, batch: pa.RecordBatch, ctx: ls.OperatorContext) -> None:
        """Add the rows to what is known."""
        old = ctx.totals.get(batch)
        ctx.totals.put(pa.table({"k": batch["k"], "n": pc.add(batch["n"], old["n"].fill_null(0))}))


def bytes_of_few_keys(keys: int, folder: Path) -> list[float]:
    """The bytes of each epoch that changed a few keys."""
    backend = ls.ParquetBackend(f"memory://{uuid.uuid4().hex}", cache_dir=folder / f"few-{keys}")
    counting = count_requests(backend)
    job = ChainedJob(KeyedTotals(), backend, key="k", parallelism=FEW_SUBTASKS)
    for first in range(0, keys, FILL_ROWS):
        job.epoch(_ones(np.arange(first, min(keys, first + FILL_ROWS))))
    random, found = np.random.default_rng(1), []
    for _ in range(WARM_UP_EPOCHS + EPOCHS):
        counting.take()
        job.epoch(_ones(random.choice(keys, FEW_KEYS, replace=False)))
        found.append(float(counting.take().bytes_written))
    return found[WARM_UP_EPOCHS:]


def _ones(keys: np.ndarray[Any, Any]) -> pa.Table:
    return pa.table({"k": keys, "n": np.ones(len(keys), dtype=np.int64)})


def count_epochs(parallelism: int, folder: Path) -> RequestCount:
    """The requests of all measured epochs."""
    backend = ls.ParquetBackend(f"memory://{uuid.uuid4().hex}", cache_dir=folder / str(parallelism))
    counting = count_requests(backend)
    sink = ls.ParquetSink(f"memory://{uuid.uuid4().hex}", roll=ls.Roll(bytes="1GB"))
    job = ChainedJob(Totals(), backend, key="k", parallelism=parallelism, sink=sink)
    random = np.random.default_rng(1)
    for epoch in range(WARM_UP_EPOCHS + EPOCHS):
        if epoch == WARM_UP_EPOCHS:
            counting.take()
        keys = random.choice(KEYS, ROWS_PER_SUBTASK * parallelism, replace=False)
        job.epoch(_ones(keys))
    return counting.take()


def monthly_price(counted: RequestCount) -> float:
    """What the requests of a month cost at one epoch in 10 seconds."""
    return dollars_a_month(counted.writes / EPOCHS, counted.lists / EPOCHS, counted.reads / EPOCHS)
