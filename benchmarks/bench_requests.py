"""What an epoch asks of an object store, at 4 to 256 subtasks, and what that costs in a month.

The subtasks run in this process, one after the other, over a store that counts. Every subtask changes
keyed state and an output file in every epoch, and every fourth also writes to a replicated table.
Retention, merges and clean-up are in the average.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakestate as ls
from benchmarks.core import Benchmark, Contender, Point, Question, Run, at_most
from lakestate.testing.chained_job import ChainedJob
from lakestate.testing.counting import RequestCount, count_requests

SUBTASKS = (4, 16, 64, 256)
WARM_UP_EPOCHS = 12
EPOCHS = 12
ROWS_PER_SUBTASK = 16
KEYS = 1_000_000
EPOCHS_PER_MONTH = 30 * 24 * 3600 // 10
WRITE_PRICE, READ_PRICE = 0.005 / 1000, 0.0004 / 1000
"""Dollars for a request to S3 Standard: writes and listings, and reads. Deletions cost nothing."""
CONSTANT_MAX = 15
COUNTS = ("writes", "reads", "lists", "deletes")


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
        Contender("Lakestate", "all defaults"),
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
    ),
    seconds=(10, 30),
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
    """Count at each parallelism."""
    with run.folder() as folder:
        for parallelism in run.pick(whole=SUBTASKS, quick=SUBTASKS[:2]):
            run.say(f"{parallelism} subtasks")
            counted, here = count_epochs(parallelism, folder), {"subtasks": parallelism}
            for name in COUNTS:
                run.record("requests", name, [getattr(counted, name) / EPOCHS], here)
            run.record("bytes", "Lakestate", [counted.bytes_written / EPOCHS], here)
            run.record("price", "Lakestate", [monthly_price(counted)], here)


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
        job.epoch(pa.table({"k": keys, "n": np.ones(len(keys), dtype=np.int64)}))
    return counting.take()


def monthly_price(counted: RequestCount) -> float:
    """What the requests of a month cost at one epoch in 10 seconds."""
    writes, reads = (counted.writes + counted.lists) / EPOCHS, counted.reads / EPOCHS
    return EPOCHS_PER_MONTH * (writes * WRITE_PRICE + reads * READ_PRICE)
