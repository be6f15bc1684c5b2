"""What an epoch writes when it changes a small or a large share of the keys."""

from __future__ import annotations

import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lakestate as ls
from benchmarks.core import Benchmark, Contender, Point, Question, Run, at_most
from benchmarks.spark_jobs.epochs import state_settings, write_epochs
from benchmarks.spark_jobs.local_spark import local_spark
from benchmarks.spark_jobs.running_totals import (
    GROUP_BY,
    LAKESTATE,
    IntegerTotals,
    run_group_by,
    stored_bytes,
)
from lakestate.testing.chained_job import ChainedJob
from lakestate.testing.counting import count_requests

SUBTASKS = 4
SHARE = "% of keys changed"
WHOLE_FILE = "all keys in one file"
SHARES = (0.1, 1, 10, 100)
EPOCHS = 6

BENCHMARK = Benchmark(
    name="changes",
    title="Bytes and requests by changed keys",
    text=(
        "Running totals of 500k integer keys, of which an epoch changes some, each once. Averages of 6 "
        "epochs after the one that filled the state; merges, snapshots, metadata and clean-up are "
        "included."
    ),
    contenders=(
        Contender(LAKESTATE, f"{SUBTASKS} subtasks, all defaults; a store that counts"),
        Contender(
            GROUP_BY, f"RocksDB with changelog checkpoints, {SUBTASKS} partitions; files of the state store"
        ),
        Contender(WHOLE_FILE, "pyarrow writes all keys as one Parquet file (zstd) in each epoch"),
    ),
    questions=(
        Question(
            "bytes",
            "Bytes that an epoch writes, by the share of keys that it changes",
            "bytes",
            axis=SHARE,
            aims=tuple(
                at_most(
                    1,
                    f"bytes written where {share} % of the keys change, against `groupBy` on RocksDB",
                    Point(LAKESTATE, {SHARE: share}),
                    Point(GROUP_BY, {SHARE: share}),
                    in_readme=False,
                    why=(
                        "each subtask writes a Parquet file with its own footer, and metadata takes 3 kB. "
                        "Both weigh the more the fewer keys change; nothing was merged."
                    ),
                )
                for share in SHARES
            ),
        ),
        Question(
            "requests",
            "Requests of an epoch, by the share of keys that it changes",
            "requests",
            axis=SHARE,
        ),
    ),
    seconds=(40, 70),
)


def measure(run: Run) -> None:
    keys = run.pick(whole=500_000, quick=100_000)
    spark = local_spark(state_settings(SUBTASKS))
    for share in run.pick(whole=SHARES, quick=(1, 100)):
        changed, here = max(1, int(keys * share / 100)), {SHARE: share}
        with run.folder() as folder:
            contenders = {
                LAKESTATE: lambda _, folder=folder, n=changed, here=here: _ours(run, folder, keys, n, here),
                GROUP_BY: lambda _, folder=folder, n=changed: _group_by(spark, folder, keys, n),
                WHOLE_FILE: lambda _, folder=folder: _one_file(folder, keys),
            }
            run.compare("bytes", contenders, here, repetitions=1)
    run.leave_out(
        "requests", GROUP_BY, "Spark's files are on the local disk here; `requests` counts them on S3"
    )
    run.leave_out("requests", WHOLE_FILE, "one request, whatever is changed")
    spark.stop()


def _rows(keys: int, changed: int, epoch: int) -> pa.Table:
    rng = np.random.default_rng(epoch)
    users = np.arange(keys) if epoch == 0 else rng.choice(keys, changed, replace=False)
    return pa.table({"user": users, "amount": rng.random(len(users))})


def _ours(run: Run, folder: Path, keys: int, changed: int, here: dict[str, float]) -> list[float]:
    backend = ls.ParquetBackend(f"memory://{uuid.uuid4().hex}", cache_dir=folder / "cache")
    counting = count_requests(backend)
    job = ChainedJob(IntegerTotals(), backend, key="user", parallelism=SUBTASKS)
    job.epoch(_rows(keys, changed, 0))
    counting.take()
    for epoch in range(1, EPOCHS + 1):
        job.epoch(_rows(keys, changed, epoch))
    counted = counting.take()
    run.record("requests", LAKESTATE, [counted.total / EPOCHS], here)
    return [counted.bytes_written / EPOCHS]


def _group_by(spark: object, folder: Path, keys: int, changed: int) -> list[float]:
    source, state = folder / "in", folder / "spark" / "group-by" / "state"
    write_epochs(source, 1, lambda epoch: _rows(keys, changed, epoch))
    run_group_by(spark, source, folder / "spark", "integers")  # type: ignore[arg-type]
    before = stored_bytes(state)
    write_epochs(source, EPOCHS, lambda epoch: _rows(keys, changed, epoch), first=1)
    run_group_by(spark, source, folder / "spark", "integers")  # type: ignore[arg-type]
    return [(stored_bytes(state) - before) / EPOCHS]


def _one_file(folder: Path, keys: int) -> list[float]:
    totals = _rows(keys, keys, 0).append_column("n", pa.array(np.ones(keys, dtype=np.int64)))
    pq.write_table(totals, folder / "all.parquet", compression="zstd")
    return [(folder / "all.parquet").stat().st_size]
