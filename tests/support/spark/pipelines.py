"""Running pipelines in tests: input files, one after the other, and what their state holds."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakestate as ls
from lakestate.operators.operator import state_tables
from lakestate.tables.manager import TableManager

EVENTS = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("ts", pa.timestamp("us", tz="UTC"))])
EVENTS_DDL = "user string, amount double, ts timestamp"
START = datetime(2026, 1, 1, tzinfo=UTC)
FIRST_FILE_S = 1_700_000_000
"""The time of the first input file: any, as long as each further one is later."""


def events(seed: int, count: int, users: int = 50) -> pa.Table:
    """Rows of some users; amounts are quarters, so that sums are exact in any order."""
    choose = random.Random(seed)
    rows = [
        {
            "user": choose.choice([None, *(f"user-{number}" for number in range(users))]),
            "amount": choose.randrange(1, 400) / 4,
            "ts": START + timedelta(seconds=seed * 100 + choose.random() * 100),
        }
        for _ in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=EVENTS)


def write_input(folder: Path, number: int, rows: pa.Table) -> None:
    """One input file, visible all at once, and read after those of lower numbers.

    Spark reads files in the order of their times, and knows no less than a millisecond: two files
    written within one would come in any order.
    """
    folder.mkdir(exist_ok=True, parents=True)
    hidden = folder / f".{number}.tmp"
    pq.write_table(rows, hidden)
    os.utime(hidden, (time.time(), FIRST_FILE_S + number))
    hidden.rename(folder / f"{number:05d}.parquet")


def read_stream(spark: Any, folder: Path, schema: str = EVENTS_DDL, files_per_batch: int = 1) -> Any:
    """The input files as a stream, some in every batch."""
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", files_per_batch)
    return reader.parquet(str(folder))


def run_available(
    pipeline: ls.Pipeline, *, finish_files: bool = False, drain: bool = False, **options: Any
) -> Any:
    """Run until all input is read."""
    query = pipeline.start(trigger={"availableNow": True}, **options)
    try:
        query.awaitTermination(120)
        assert not query.isActive
    finally:
        is_well = query.exception() is None
        query.stop(finish_files=finish_files and is_well, drain=drain and is_well)
    return query


def wait_for(reached: Callable[[], bool], query: ls.PipelineQuery, deadline_s: float = 60) -> None:
    """Wait for a condition while the query runs."""
    ended = time.monotonic() + deadline_s
    while not reached():
        assert time.monotonic() < ended, "not reached in time"
        assert query.exception() is None
        query.awaitTermination(0.05)


def state_rows(
    backend: ls.ParquetBackend, job_id: str, operator_id: str, operator: ls.Operator, table: str
) -> list[dict[str, Any]]:
    """What a keyed table of the newest epoch holds."""
    manifest = backend.load_checkpoint_metadata(job_id)
    task = ls.TaskInfo(job_id, operator_id)
    manager = TableManager.load(task, state_tables(operator), backend, manifest.epoch)
    rows = [row for batch in manager.keyed(table).scan() for row in batch.to_pylist()]
    return sorted(rows, key=str)


def spark_totals(spark: Any, folder: Path) -> list[dict[str, Any]]:
    """The oracle: the same totals by Spark SQL over all input at once."""
    rows = (
        spark.read.schema(EVENTS_DDL)
        .parquet(str(folder))
        .groupBy("user")
        .agg({"amount": "sum", "*": "count"})
        .selectExpr("user", "`count(1)` as n", "`sum(amount)` as spend")
        .collect()
    )
    return sorted((row.asDict() for row in rows), key=str)


def read_output(folder: Path) -> Sequence[dict[str, Any]]:
    """All rows that a Parquet sink has made visible."""
    files = [path for path in sorted(folder.rglob("*.parquet")) if not _is_hidden(path, folder)]
    return [row for path in files for row in pq.read_table(path).to_pylist()]


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
