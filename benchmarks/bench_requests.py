"""What an epoch asks of an object store, at 4 to 256 subtasks, and what that costs in a month.

The subtasks run in this process, one after the other, over a store that counts. Every subtask changes
keyed state and an output file in every epoch, and every fourth also writes to a replicated table.
Retention, merges and clean-up are in the average.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakestate as ls
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


def measure(parallelism: int, folder: str) -> RequestCount:
    """The requests of all measured epochs."""
    backend = ls.ParquetBackend(f"memory://{uuid.uuid4().hex}", cache_dir=f"{folder}/{parallelism}")
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


COLUMNS = ("subtasks", "writes", "bound", "reads", "bound", "lists", "deletes", "requests", "kB", "$/month")


def costs(parallelism: int, counted: RequestCount) -> list[float]:
    """An epoch's requests beside their bounds, and what those of a month cost at one epoch in 10 seconds."""
    writes, reads, lists = (count / EPOCHS for count in (counted.writes, counted.reads, counted.lists))
    return [
        writes,
        # Each changed table is a write, and so is the metadata of each changed subtask.
        2 * 2 * parallelism + parallelism / 4 + CONSTANT_MAX,
        reads,
        # To verify metadata, and to merge the files of the replicated table.
        2 * parallelism + parallelism / 4 + CONSTANT_MAX,
        lists,
        counted.deletes / EPOCHS,
        counted.total / EPOCHS,
        counted.bytes_written / EPOCHS / 1000,
        EPOCHS_PER_MONTH * ((writes + lists) * WRITE_PRICE + reads * READ_PRICE),
    ]


def main() -> None:
    """Print the table."""
    print("an operator with a keyed and a replicated table, and a sink; all subtasks of both change")
    print("".join(f"{name:>10}" for name in COLUMNS))
    with tempfile.TemporaryDirectory() as folder:
        for parallelism in SUBTASKS:
            shown = costs(parallelism, measure(parallelism, folder))
            print(f"{parallelism:>10}" + "".join(f"{value:>10,.1f}" for value in shown), flush=True)


if __name__ == "__main__":
    main()
