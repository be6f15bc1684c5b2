"""Running count and sum per key: the same rows, and each contender's own way to keep the totals.

Everybody gives out the new total of each key that an epoch changed, and all those rows are consumed: by
`noop` in Spark, by an operator that counts in Lakestate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import lakestate as ls
from benchmarks.spark_jobs.epochs import Consume, lakestate_epochs, read_epochs, spark_epochs, write_epochs
from lakestate.protocol.key_ranges import subtask_sql

LAKESTATE = "Lakestate"
STATELESS = "the job without state"
GROUP_BY = "groupBy on RocksDB"
TRANSFORM = "transformWithState"
TRANSFORM_PANDAS = "transformWithStateInPandas"
APPLY_PANDAS = "applyInPandasWithState"
TYPES = {"strings": "string", "integers": "bigint"}
ZIPF = 1.1
"""The exponent of the skewed keys: of 2 million, the most frequent one is in 10 % of the rows."""


class Totals(ls.Operator):
    """The same totals as Spark's `groupBy().agg()`."""

    input = "user string, amount double"
    output = "user string, n bigint, spend double"
    totals = ls.KeyedTable(key="user string", value="n bigint, spend double")

    def process_batch(self, batch: pa.RecordBatch, ctx: ls.OperatorContext) -> Iterator[pa.Table]:
        """Add the rows to what is known, and give out what changed."""
        new = aggregate(pa.table(batch))
        old = ctx.totals.get(new)
        rows = pa.table(
            {
                "user": new["user"],
                "n": pc.add(new["amount_count"], old["n"].fill_null(0)),
                "spend": pc.add(new["amount_sum"], old["spend"].fill_null(0.0)),
            }
        )
        ctx.totals.put(rows)
        yield rows


class IntegerTotals(Totals):
    """With integers as keys."""

    input = "user bigint, amount double"
    output = "user bigint, n bigint, spend double"
    totals = ls.KeyedTable(key="user bigint", value="n bigint, spend double")


OPERATORS = {"strings": Totals, "integers": IntegerTotals}


def aggregate(rows: pa.Table) -> pa.Table:
    """The totals of some rows alone."""
    return rows.group_by("user").aggregate([("amount", "count"), ("amount", "sum")])


def draw_rows(number: int, *, rows: int, keys: int, kind: str, skew: str) -> pa.Table:
    """The rows of an epoch: `kind` is strings or integers, `skew` uniform, skewed or each key once."""
    rng = np.random.default_rng(number)
    if skew == "skewed":
        # Ranks of a bounded Zipf distribution by its inverse, scattered so that neighbours are not alike.
        shares = np.cumsum(1 / np.arange(1, keys + 1) ** ZIPF)
        drawn = np.searchsorted(shares, rng.random(rows) * shares[-1]) * 7_368_787 % keys
    elif skew == "distinct":
        drawn = np.arange(number * rows, (number + 1) * rows) % keys
    else:
        drawn = rng.integers(0, keys, rows)
    users = pa.array(drawn)
    if kind == "strings":
        users = pc.binary_join_element_wise("user-", users.cast(pa.string()), "")
    return pa.table({"user": users, "amount": rng.random(rows)})


def write_rows(
    folder: Path, epochs: int, rows: int, *, keys: int, kind: str, skew: str, first: int = 0
) -> None:
    """One file for each epoch."""
    write_epochs(folder, epochs, partial(draw_rows, rows=rows, keys=keys, kind=kind, skew=skew), first=first)


def read_rows(spark: SparkSession, folder: Path, kind: str) -> DataFrame:
    """The files as a stream."""
    return read_epochs(spark, folder, f"user {TYPES[kind]}, amount double")


def run_lakestate(
    spark: SparkSession, source: Path, folder: Path, kind: str, subtasks: int, **options: Any
) -> list[float]:
    """Milliseconds of epochs of a pipeline."""

    def build(pipeline: ls.Pipeline) -> None:
        stream = pipeline.source(read_rows(spark, source, kind))
        stream.key_by("user").apply("totals", OPERATORS[kind]()).apply("consume", Consume())

    return lakestate_epochs(folder, subtasks, build, **options)


def run_stateless(spark: SparkSession, source: Path, folder: Path, kind: str, subtasks: int) -> list[float]:
    """Milliseconds of epochs that route the rows and sum up each epoch alone."""
    ends: list[float] = []

    def total(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrived = [*batches]
        totals = aggregate(pa.Table.from_batches(arrived)) if arrived else ()
        yield pa.record_batch({"n": [len(totals)]})

    def run(batch: DataFrame, batch_id: int) -> None:
        target = sf.expr(subtask_sql("xxhash64(user)", subtasks))
        batch.repartitionById(subtasks, target).mapInArrow(total, "n bigint").collect()
        ends.append(time.perf_counter())

    writer = read_rows(spark, source, kind).writeStream.foreachBatch(run)
    writer = writer.option("checkpointLocation", str(folder / "stateless"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return [(end - start) * 1000 for start, end in pairwise(ends)]


def warm_up(spark: SparkSession, folder: Path, subtasks: int) -> None:
    """Run everybody once: whoever is first would pay for starting workers and compiling code."""
    write_rows(folder / "in", 3, 1_000, keys=10_000, kind="strings", skew="uniform")
    run_lakestate(spark, folder / "in", folder, "strings", subtasks)
    run_stateless(spark, folder / "in", folder, "strings", subtasks)
    run_group_by(spark, folder / "in", folder, "strings")


def run_group_by(spark: SparkSession, source: Path, folder: Path, kind: str) -> list[float]:
    """Milliseconds of micro-batches of Spark's own aggregation."""
    grouped = read_rows(spark, source, kind).groupBy("user")
    totals = grouped.agg(sf.count("*").alias("n"), sf.sum("amount").alias("spend"))
    return spark_epochs(totals, folder / "group-by", "update")


def run_row_by_row(spark: SparkSession, source: Path, folder: Path, kind: str, name: str) -> list[float]:
    """Milliseconds of micro-batches of one of Spark's operators that call Python for each key."""
    output = OPERATORS[kind].output
    grouped = read_rows(spark, source, kind).groupBy("user")
    frames: dict[str, Callable[[], DataFrame]] = {
        TRANSFORM: lambda: grouped.transformWithState(RowTotals(), output, "update", "none"),
        TRANSFORM_PANDAS: lambda: grouped.transformWithStateInPandas(
            PandasTotals(), output, "update", "none"
        ),
        APPLY_PANDAS: lambda: grouped.applyInPandasWithState(
            add_to_group, output, "n bigint, spend double", "update", "NoTimeout"
        ),
    }
    return spark_epochs(frames[name](), folder / name, "update")


class RowTotals(StatefulProcessor):
    """The totals of one key, for Spark's `transformWithState`."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self.total = handle.getValueState("total", "n bigint, spend double")

    def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Iterator[Any]:  # noqa: N802
        """Add the rows of a key."""
        n, spend = self.total.get() if self.total.exists() else (0, 0.0)
        for row in rows:
            n, spend = n + 1, spend + row["amount"]
        self.total.update((n, spend))
        yield Row(user=key[0], n=n, spend=spend)

    def close(self) -> None:
        """Nothing to close."""


class PandasTotals(RowTotals):
    """The same for `transformWithStateInPandas`."""

    def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Iterator[Any]:  # noqa: N802
        """Add the rows of a key."""
        n, spend = self.total.get() if self.total.exists() else (0, 0.0)
        for frame in rows:
            n, spend = n + len(frame), spend + float(frame["amount"].sum())
        self.total.update((n, spend))
        yield pd.DataFrame({"user": [key[0]], "n": [n], "spend": [spend]})


def add_to_group(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """The same for `applyInPandasWithState`."""
    n, spend = state.get if state.exists else (0, 0.0)
    for frame in frames:
        n, spend = n + len(frame), spend + float(frame["amount"].sum())
    state.update((n, spend))
    yield pd.DataFrame({"user": [key[0]], "n": [n], "spend": [spend]})


def stored_bytes(folder: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
