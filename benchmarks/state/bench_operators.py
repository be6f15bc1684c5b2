"""Ready operators against Spark's own stateful operators on RocksDB, and the same job without state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import lakestate as ls
from benchmarks.core import Aim, Benchmark, Contender, Point, Question, Run, at_least
from benchmarks.spark_jobs.epochs import (
    WARM_UP,
    Consume,
    lakestate_epochs,
    read_epochs,
    spark_epochs,
    state_settings,
    stateless_epochs,
    write_epochs,
)
from benchmarks.spark_jobs.local_spark import local_spark

SUBTASKS = 4
START_US = 1_767_225_600_000_000
EPOCH_S = 10
"""Event time that passes in an epoch."""
SCHEMA = "id string, amount bigint, ts timestamp"
OURS, SPARKS_OWN, STATELESS = "Lakestate", "Spark's own operator", "the job without state"
TIME_MAX = 1.5
"""How many times as long as the job without state."""


@dataclass(frozen=True)
class Case:
    """One question to all contenders."""

    title: str
    rows: int
    """Per epoch and source."""
    keys: int
    ours: Callable[[list[Any]], Any]
    spark: Callable[[list[DataFrame]], DataFrame]
    at_least: float
    why: str
    why_not_bare: str
    sources: int = 1
    mode: str = "append"
    spark_rows: int | None = None
    """Rows per epoch of Spark, if it cannot finish as many in reasonable time."""


CASES = [
    Case(
        "tumbling window: count and sum",
        rows=1_000_000,
        keys=100_000,
        ours=lambda streams: (
            streams[0]
            .key_by("id")
            .window(ls.Tumbling("10 seconds"))
            .aggregate("windows", n=ls.count(), total=ls.sum("amount"))
        ),
        spark=lambda frames: (
            frames[0]
            .groupBy(sf.window("ts", "10 seconds"), "id")
            .agg(sf.count("*").alias("n"), sf.sum("amount").alias("total"))
        ),
        at_least=4,
        why=(
            "Spark needs most of an epoch to read and to combine the million rows, and needs the same for "
            "its own window. `groupBy(window, key)` over the same file as a batch, without a stream and "
            "state, is 2.8 times as fast as Spark's window (docs/decisions/050)."
        ),
        why_not_bare="windows that close are read, sorted and given out.",
    ),
    Case(
        "session window, gap 5 s",
        rows=200_000,
        keys=100_000,
        ours=lambda streams: (
            streams[0].key_by("id").window(ls.Session("5 seconds")).aggregate("sessions", n=ls.count())
        ),
        spark=lambda frames: (
            frames[0].groupBy(sf.session_window("ts", "5 seconds"), "id").agg(sf.count("*").alias("n"))
        ),
        at_least=4,
        why=(
            "the job that only routes the rows to Python is itself less than four times as fast as Spark's "
            "own; uniting rows with open sessions, and storing them, comes on top."
        ),
        why_not_bare="rows are united with open sessions, which are looked up and stored.",
    ),
    Case(
        "interval join within a minute",
        rows=100_000,
        keys=500_000,
        sources=2,
        ours=lambda streams: (
            streams[0]
            .key_by("id")
            .join(
                "joined",
                streams[1].key_by("id"),
                within=("0 seconds", "1 minute"),
                prefix=("l_", "r_"),
            )
        ),
        spark=lambda frames: (
            frames[0]
            .alias("l")
            .join(
                frames[1].alias("r"),
                sf.expr("l.id = r.id AND r.ts >= l.ts AND r.ts <= l.ts + INTERVAL 1 MINUTE"),
            )
        ),
        at_least=4,
        why="rows of two sources that Spark holds in memory, and what both sides keep.",
        why_not_bare="rows of two sources that Spark holds in memory, and what both sides keep.",
    ),
    Case(
        "deduplication within a minute",
        rows=300_000,
        keys=3_000_000,
        ours=lambda streams: streams[0].key_by("id").deduplicate("once", within="1 minute"),
        spark=lambda frames: frames[0].dropDuplicatesWithinWatermark(["id"]),
        at_least=4,
        why=(
            "the job that only routes the rows to Python is itself less than four times as fast as Spark's "
            "own; looking up every key, and storing new ones, comes on top."
        ),
        why_not_bare="every key is looked up, and new ones are stored.",
    ),
    Case(
        "keyed function: running count and sum",
        rows=200_000,
        keys=200_000,
        spark_rows=20_000,
        ours=lambda streams: streams[0].key_by("id").process("totals", KeyedTotals()),
        spark=lambda frames: (
            frames[0].groupBy("id").transformWithState(RowTotals(), KeyedTotals.output, "update", "none")
        ),
        mode="update",
        at_least=20,
        why="user code is called once per key, in Python.",
        why_not_bare="user code is called once per key.",
    ),
]


class KeyedTotals(ls.KeyedFunction):
    """The code per key."""

    output = "id string, n bigint, total bigint"
    n = ls.ValueState("bigint", default=0)
    total = ls.ValueState("bigint", default=0)

    def process(self, key: Any, rows: Any, state: Any) -> Any:
        """Count and sum up."""
        for row in rows:
            state.n += 1
            state.total += row.amount
        yield key, state.n, state.total


class RowTotals(StatefulProcessor):
    """The same code per key for Spark."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self.totals = handle.getValueState("totals", "n bigint, total bigint")

    def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Iterator[Any]:  # noqa: N802
        """Count and sum up."""
        n, total = self.totals.get() if self.totals.exists() else (0, 0)
        for row in rows:
            n, total = n + 1, total + row["amount"]
        self.totals.update((n, total))
        yield Row(id=key[0], n=n, total=total)

    def close(self) -> None:
        """Nothing to close."""


def _aims(case: Case) -> Iterator[Aim]:
    here = {"operator": case.title}
    yield at_least(
        case.at_least,
        f"{case.title}, against Spark's own",
        Point(OURS, here),
        Point(SPARKS_OWN, here),
        why=case.why,
    )
    yield at_least(
        round(1 / TIME_MAX, 2),
        f"{case.title}, against the job without state ({TIME_MAX} × its time)",
        Point(OURS, here),
        Point(STATELESS, here),
        why=case.why_not_bare,
    )


BENCHMARK = Benchmark(
    name="operators",
    title="Ready operators on Spark",
    text=(
        "Each operator over the same Parquet files with string keys, one file per epoch and source, 10 "
        "seconds of event time in each. All output rows are consumed. Spark runs with `local[2]`, 4 GB, 4 "
        "shuffle partitions, adaptive execution off."
    ),
    contenders=(
        Contender(OURS, "4 subtasks, all defaults"),
        Contender(
            SPARKS_OWN,
            "`groupBy` with `window` or `session_window`, a stream-stream join, "
            "`dropDuplicatesWithinWatermark`, `transformWithState`; RocksDB state store with changelog "
            "checkpoints; the same watermark",
        ),
        Contender(STATELESS, "`foreachBatch`: rows routed to 4 tasks by key and counted in Python"),
    ),
    questions=(
        Question(
            "rate",
            "Rows per second of ready operators",
            "rows/s",
            text=(
                "Rows of all sources. `transformWithState` gets epochs of 20,000 rows, because it would need "
                "minutes for those that the others get."
            ),
            aims=tuple(aim for case in CASES for aim in _aims(case)),
            in_readme=True,
        ),
    ),
    seconds=(110, 560),
)


def measure(run: Run) -> None:
    """All cases; smaller ones in a quick run."""
    spark = local_spark(state_settings(SUBTASKS))
    for place, case in enumerate(CASES):
        with run.folder() as folder:
            measure_case(run, spark, case, folder, (OURS, SPARKS_OWN, STATELESS)[:: -1 if place % 2 else 1])
    spark.stop()


def measure_case(run: Run, spark: SparkSession, case: Case, folder: Path, order: tuple[str, ...]) -> None:
    """All contenders, in an order that alternates between cases."""
    rows, epochs = case.rows // run.pick(whole=1, quick=20), run.pick(whole=6, quick=4)
    theirs = min(rows, case.spark_rows or rows)
    for place, size in (("in", rows), ("few", theirs)):
        for source in range(case.sources):
            table = partial(_rows, rows=size, keys=case.keys, salt=source)
            write_epochs(folder / place / str(source), epochs, table)

    def ours(number: int) -> list[float]:
        here = folder / str(number)
        times = lakestate_epochs(here, SUBTASKS, lambda pipeline: _build(spark, pipeline, folder, case))
        return _rates(times, rows * case.sources)

    def sparks_own(number: int) -> list[float]:
        frames = _frames(spark, folder / "few", case)
        frames = [frame.withWatermark("ts", "2 seconds") for frame in frames]
        times = spark_epochs(case.spark(frames), folder / f"{number}-spark", case.mode)
        return _rates(times, theirs * case.sources)

    def stateless(number: int) -> list[float]:
        frames = [(frame, "id") for frame in _frames(spark, folder / "in", case)]
        times = stateless_epochs(frames, folder / f"{number}-stateless", SUBTASKS)
        return _rates(times, rows * case.sources)

    contenders = {OURS: ours, SPARKS_OWN: sparks_own, STATELESS: stateless}
    in_order = {name: contenders[name] for name in order}
    # A new JVM compiles what it runs: the first of them would pay for the others.
    repetitions = run.pick(whole=2, quick=1)
    run.compare("rate", in_order, {"operator": case.title}, repetitions=repetitions, warm_up=1)


def _rates(times_ms: list[float], rows: int) -> list[float]:
    return [rows / ms * 1000 for ms in times_ms[WARM_UP - 1 :]]


def _build(spark: SparkSession, pipeline: ls.Pipeline, folder: Path, case: Case) -> None:
    frames = _frames(spark, folder / "in", case)
    streams = [
        pipeline.source(frame, name=f"source-{number}", event_time="ts", delay="2 seconds")
        for number, frame in enumerate(frames)
    ]
    case.ours(streams).apply("consume", Consume())


def _frames(spark: SparkSession, folder: Path, case: Case) -> list[DataFrame]:
    return [read_epochs(spark, folder / str(number), SCHEMA) for number in range(case.sources)]


def _rows(epoch: int, rows: int, keys: int, salt: int) -> pa.Table:
    rng = np.random.default_rng([epoch, salt])
    ids = pa.array(rng.integers(0, keys, rows))
    times = START_US + epoch * EPOCH_S * 1_000_000 + np.sort(rng.integers(0, EPOCH_S * 1_000_000, rows))
    return pa.table(
        {
            "id": pa.compute.binary_join_element_wise("key-", ids.cast(pa.string()), ""),
            "amount": rng.integers(0, 10_000, rows),
            "ts": pa.array(times).cast(pa.timestamp("us", tz="UTC")),
        }
    )
