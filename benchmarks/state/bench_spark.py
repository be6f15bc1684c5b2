"""Running count and sum per key on Spark: Lakestate, Spark's own state, and the job without state."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.core import Benchmark, Contender, Point, Question, Run, Unavailable, at_least, at_most
from benchmarks.spark_jobs.epochs import state_settings
from benchmarks.spark_jobs.local_spark import local_spark
from benchmarks.spark_jobs.running_totals import (
    APPLY_PANDAS,
    GROUP_BY,
    LAKESTATE,
    STATELESS,
    TRANSFORM,
    TRANSFORM_PANDAS,
    run_group_by,
    run_lakestate,
    run_row_by_row,
    run_stateless,
    stored_bytes,
    warm_up,
    write_rows,
)

SUBTASKS = 4
SIZE, KIND, SKEW = "rows per epoch", "keys", "distribution"
SMALL = 1_000
"""Rows of the first epoch of each job: code is compiled and workers are started."""
GROUP_BY_MAX = 1_000_000
KINDS = (("strings", "uniform"), ("integers", "uniform"), ("strings", "skewed"), ("integers", "skewed"))
WHOLE = (
    (1_000, 6, 2, KINDS[:1]),
    (10_000, 5, 2, KINDS[:1]),
    (100_000, 4, 2, KINDS[:1]),
    (250_000, 2, 2, KINDS),
    (1_000_000, 1, 3, (KINDS[0], KINDS[3])),
    (5_000_000, 1, 1, KINDS[:1]),
)
QUICK = ((1_000, 4, 2, KINDS[:1]), (250_000, 2, 2, KINDS[:1]))
"""Rows of an epoch, epochs that count, repetitions, and kinds of keys."""
UNIFORM_STRINGS = {KIND: "strings", SKEW: "uniform"}
MILLION = {SIZE: 1_000_000, **UNIFORM_STRINGS}
QUARTER = {SIZE: 250_000, **UNIFORM_STRINGS}
MOST_IS_SPARK = (
    "the job without state takes most of the time: Spark plans the epoch, reads, shuffles, hands rows to "
    "Python, and writes its own logs. No state, however fast, makes that shorter."
)
EVERY_EPOCH = "an epoch of any size has metadata of each subtask, a manifest, a fence and a record to write."
BY_PYTHON = "calls Python for each key, and needs minutes for an epoch of this size"

BENCHMARK = Benchmark(
    name="spark",
    title="Running totals on Spark",
    text=(
        "Count and sum per key over Parquet files, one file (row groups of 125,000 rows) per epoch. Keys "
        "are drawn from twice as many as there are rows in an epoch, at least 100,000: uniformly, or "
        "skewed (Zipf, exponent 1.1). Every contender gives out the new total of each key that an epoch "
        "changed, and all those rows are consumed: by `noop` in Spark, by an operator that counts in "
        "Lakestate. Spark runs with `local[2]`, 4 GB, 4 shuffle partitions, adaptive execution off, and "
        "Arrow batches of 131,072 rows."
    ),
    contenders=(
        Contender(LAKESTATE, "4 subtasks, all defaults; state and cache on the local disk"),
        Contender(
            STATELESS,
            "`foreachBatch`: rows routed to 4 tasks by key; each epoch summed up alone, by pyarrow",
        ),
        Contender(
            GROUP_BY, "`groupBy().agg()` in update mode, RocksDB state store with changelog checkpoints"
        ),
        Contender(TRANSFORM, "one `ValueState` per key, the same state store; Python rows"),
        Contender(TRANSFORM_PANDAS, "the same with pandas"),
        Contender(APPLY_PANDAS, "one state tuple per key, the same state store"),
    ),
    questions=(
        Question(
            "rows-per-epoch",
            "How many rows per second, by rows per epoch",
            "rows/s",
            axis=SIZE,
            in_readme=True,
            aims=(
                at_least(
                    8,
                    "1M rows per epoch, against `groupBy` on RocksDB",
                    Point(LAKESTATE, MILLION),
                    Point(GROUP_BY, MILLION),
                    why=MOST_IS_SPARK,
                ),
                at_least(
                    4,
                    "250k rows per epoch, against `groupBy` on RocksDB",
                    Point(LAKESTATE, QUARTER),
                    Point(GROUP_BY, QUARTER),
                    why=MOST_IS_SPARK,
                ),
                at_least(
                    0.91,
                    "1M rows per epoch, against the job without state (1.1 × its time)",
                    Point(LAKESTATE, MILLION),
                    Point(STATELESS, MILLION),
                    why=(
                        "lookups of the keys first of all, then the operator's own work and the encoding of "
                        "each subtask's run, as `profile` shows."
                    ),
                ),
                at_least(
                    0.91,
                    "250k rows per epoch, against the job without state (1.1 × its time)",
                    Point(LAKESTATE, QUARTER),
                    Point(STATELESS, QUARTER),
                    why=EVERY_EPOCH,
                ),
                at_least(
                    1.11,
                    "1,000 rows per epoch, against the job without state (0.9 × its time)",
                    Point(LAKESTATE, {SIZE: 1_000, **UNIFORM_STRINGS}),
                    Point(STATELESS, {SIZE: 1_000, **UNIFORM_STRINGS}),
                    why=EVERY_EPOCH,
                ),
                at_least(
                    100,
                    "100k rows per epoch, against `transformWithState`",
                    Point(LAKESTATE, {SIZE: 100_000, **UNIFORM_STRINGS}),
                    Point(TRANSFORM, {SIZE: 100_000, **UNIFORM_STRINGS}),
                    why="at this size, what Spark does around an epoch is most of Lakestate's time.",
                ),
            ),
        ),
        Question(
            "bytes",
            "Bytes of state that an epoch writes, merges and snapshots included",
            "bytes",
            text="All files of the checkpoint divided by the number of large epochs; none is removed.",
            aims=(
                at_most(
                    1,
                    "1M rows per epoch: bytes of state written, against changelog and snapshots",
                    Point(LAKESTATE, MILLION),
                    Point(GROUP_BY, MILLION),
                ),
            ),
        ),
    ),
    seconds=(80, 350),
    in_quick=True,
)


def measure(run: Run) -> None:
    spark = local_spark(state_settings(SUBTASKS))
    with run.folder() as folder:
        warm_up(spark, folder, SUBTASKS)
    for size, counted, repetitions, kinds in run.pick(whole=WHOLE, quick=QUICK):
        for place, (kind, skew) in enumerate(kinds):
            # The first kind is repeated; the others show whether keys matter.
            count = repetitions if place == 0 else 1
            order = (LAKESTATE, STATELESS, GROUP_BY)[:: -1 if place % 2 else 1]
            epochs_of_size(run, spark, size, counted, count, {KIND: kind, SKEW: skew}, order)
    row_by_row(run, spark, 1_000, [TRANSFORM, TRANSFORM_PANDAS, APPLY_PANDAS])
    row_by_row(run, spark, 10_000, [TRANSFORM, TRANSFORM_PANDAS, APPLY_PANDAS])
    if run.pick(whole=True, quick=False):
        row_by_row(run, spark, 100_000, [TRANSFORM, APPLY_PANDAS])
    run.leave_out("rows-per-epoch", TRANSFORM_PANDAS, BY_PYTHON, {SIZE: 100_000, **UNIFORM_STRINGS})
    for name in (TRANSFORM, TRANSFORM_PANDAS, APPLY_PANDAS):
        run.leave_out("rows-per-epoch", name, BY_PYTHON, {SIZE: 250_000, **UNIFORM_STRINGS})
    spark.stop()


def epochs_of_size(
    run: Run,
    spark: SparkSession,
    size: int,
    counted: int,
    repetitions: int,
    data: dict[str, str],
    order: tuple[str, ...],
) -> None:
    """Contenders that work on whole batches: a small epoch, one that fills state, and those that count."""
    with run.folder() as folder:
        source, kind, keys = folder / "in", data[KIND], max(100_000, 2 * size)
        write_rows(source, 1, SMALL, keys=keys, **_kind_and_skew(data))
        write_rows(source, 1 + counted, size, keys=keys, **_kind_and_skew(data), first=1)

        def lakestate(number: int) -> list[float]:
            times = run_lakestate(spark, source, folder / str(number), kind, SUBTASKS)
            _record_bytes(run, LAKESTATE, folder / str(number) / "lakestate", size, counted, data)
            return _rates(times, size, counted)

        def stateless(number: int) -> list[float]:
            times = run_stateless(spark, source, folder / str(number), kind, SUBTASKS)
            return _rates(times, size, counted)

        def group_by(number: int) -> list[float]:
            if size > GROUP_BY_MAX:
                raise Unavailable("an epoch of this size takes more than a minute")
            times = run_group_by(spark, source, folder / str(number), kind)
            _record_bytes(run, GROUP_BY, folder / str(number) / "group-by" / "state", size, counted, data)
            return _rates(times, size, counted)

        contenders = {LAKESTATE: lakestate, STATELESS: stateless, GROUP_BY: group_by}
        in_order = {name: contenders[name] for name in order}
        run.compare("rows-per-epoch", in_order, {SIZE: size, **data}, repetitions=repetitions)


def row_by_row(run: Run, spark: SparkSession, size: int, names: list[str]) -> None:
    """Operators of Spark that call Python for each key: one epoch after two small ones."""
    with run.folder() as folder:
        data, keys = _kind_and_skew(UNIFORM_STRINGS), max(100_000, 2 * size)
        write_rows(folder / "in", 2, SMALL, keys=keys, **data)
        write_rows(folder / "in", 1, size, keys=keys, **data, first=2)
        contenders = {
            name: lambda number, name=name: _rates(
                run_row_by_row(spark, folder / "in", folder / str(number), "strings", name), size, 1
            )
            for name in names
        }
        run.compare("rows-per-epoch", contenders, {SIZE: size, **UNIFORM_STRINGS}, repetitions=1)


def _kind_and_skew(data: dict[str, str]) -> dict[str, str]:
    return {"kind": data[KIND], "skew": data[SKEW]}


def _rates(times_ms: list[float], size: int, counted: int) -> list[float]:
    """Rows per second of the last epochs."""
    return [size / ms * 1000 for ms in times_ms[-counted:]]


def _record_bytes(
    run: Run, contender: str, folder: Path, size: int, counted: int, data: dict[str, str]
) -> None:
    if size >= 250_000:
        run.record("bytes", contender, [stored_bytes(folder) / (1 + counted)], {SIZE: size, **data})
