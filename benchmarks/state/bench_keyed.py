"""A `KeyedTable` without Spark: epochs, restores and memory for several sizes of state."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import lakestate as ls
from benchmarks.core import Benchmark, Contender, Point, Question, Run, at_most
from benchmarks.core.run import alternate
from benchmarks.state.keyed_state import (
    BATCH_ROWS,
    TABLE,
    TASK,
    call,
    draw_keys,
    open_backend,
    restore,
    run_epoch,
)
from lakestate.tables.writers import WRITERS_MAX, writers

KEYS = "keys in state"
OURS, FLOOR = "Lakestate", "by hand"
PYARROW, COLD, WARM, FIRST = "pyarrow", "without the cache", "with the cache", "with the cache, new process"
WARM_UP = 2
RESTORED = 5_000_000

BENCHMARK = Benchmark(
    name="keyed",
    title="Keyed tables",
    text=(
        "One subtask without Spark, on the local disk. An epoch restores the table as a Spark task does, "
        f"reads {BATCH_ROWS:,} keys (all of them if there are fewer), writes them, and makes a checkpoint. "
        "The key is a bigint, the value a bigint and a double."
    ),
    contenders=(
        Contender(OURS, "all defaults; the host's cache is warm"),
        Contender(
            FLOOR,
            "state sorted in memory: `searchsorted`, `take` and one Parquet file (zstd) per epoch; no "
            "restore",
        ),
        Contender(PYARROW, "reads the same Parquet files with `read_table`"),
        Contender(COLD, "Lakestate, the files are read from the store and verified"),
        Contender(WARM, "Lakestate, in a process that has used the cache before"),
        Contender(FIRST, "Lakestate, in a process that compares the cached files with their checksums first"),
    ),
    questions=(
        Question(
            "epoch",
            "Time of an epoch, by keys in state",
            "ms",
            axis=KEYS,
            in_readme=True,
            aims=(
                at_most(
                    1.3,
                    "an epoch with 50M keys in state, against 100k keys",
                    Point(OURS, {KEYS: 50_000_000}),
                    Point(OURS, {KEYS: 100_000}),
                    why=(
                        "lookups take twice as long, at random places of runs that no cache of the "
                        "processor holds. Nothing is read from the disk."
                    ),
                ),
                at_most(
                    2,
                    "an epoch with 1M keys in state, against the same by hand",
                    Point(OURS, {KEYS: 1_000_000}),
                    Point(FLOOR, {KEYS: 1_000_000}),
                ),
            ),
        ),
        Question(
            "restore",
            "Time to restore a table and look three keys up, by keys in state",
            "ms",
            axis=KEYS,
            aims=(
                at_most(
                    2,
                    "restoring 5M keys without the cache, against reading the files with pyarrow",
                    Point(COLD, {KEYS: RESTORED}),
                    Point(PYARROW, {KEYS: RESTORED}),
                    why=(
                        "hashes of all keys are computed and checked for order, every byte is compared with "
                        "a checksum, and the rows are written to the cache."
                    ),
                ),
                at_most(
                    0.05,
                    "the same with the cache, against restoring without it",
                    Point(WARM, {KEYS: RESTORED}),
                    Point(COLD, {KEYS: RESTORED}),
                ),
                at_most(
                    0.05,
                    "the same, the first time in a process",
                    Point(FIRST, {KEYS: RESTORED}),
                    Point(COLD, {KEYS: RESTORED}),
                    why=(
                        "a process reads a cached run and compares it with its checksum before it first uses "
                        "it. The reading takes three quarters of the time."
                    ),
                ),
            ),
        ),
        Question(
            "memory",
            "Memory that an epoch needs, by keys in state",
            "bytes",
            axis=KEYS,
            text=(
                "Private memory of a new process after the epoch, less than before it. Runs are mapped from "
                "the cache, so that the system can drop their pages and processes of a host share them."
            ),
        ),
    ),
    seconds=(20, 155),
    in_quick=True,
)


def measure(run: Run) -> None:
    sizes = run.pick(
        whole=[10_000, 100_000, 1_000_000, 10_000_000, 50_000_000], quick=[10_000, 100_000, 1_000_000]
    )
    with run.folder() as folder:
        for size in sizes:
            run.say(f"filling {size:,} keys")
            call("fill", folder / str(size), size)
        epochs(run, folder, sizes)
        memory(run, folder, sizes)
    with run.folder() as folder:
        for size in run.pick(whole=[100_000, 1_000_000, RESTORED, 20_000_000], quick=[100_000, 1_000_000]):
            restores(run, folder / str(size), size)


def epochs(run: Run, folder: Path, sizes: list[int]) -> None:
    """Sizes take turns too: they are compared with each other."""
    # An epoch waits for the disk. What remains to be written of the state is not its own.
    os.sync()
    rng = np.random.default_rng(1)
    floors = {size: Floor(size, folder / "floor.parquet") for size in sizes if size <= 10_000_000}
    rounds = WARM_UP + run.pick(whole=11, quick=7)
    for number, name in alternate([str(size) for size in sizes], rounds):
        size = int(name)
        run.say(f"epoch with {size:,} keys, {number + 1} of {rounds}")
        asked = draw_keys(size, rng)
        # Every epoch starts from the store, as it does in a Spark worker.
        backend = open_backend(folder / name, folder / name / "cache")
        started = time.perf_counter()
        tables = ls.TableManager.load(TASK, [TABLE], backend, restore_from=1)
        run_epoch(tables, number + 2, asked)
        ours = (time.perf_counter() - started) * 1000
        by_hand = floors[size].run(rng) if size in floors else None
        if number >= WARM_UP:
            run.record("epoch", OURS, [ours], {KEYS: size})
            if by_hand is not None:
                run.record("epoch", FLOOR, [by_hand], {KEYS: size})
    for size in sizes:
        if size not in floors:
            run.leave_out("epoch", FLOOR, "would hold all of the state in memory several times", {KEYS: size})


class Floor:
    """The same epoch by hand, on state that is in memory already."""

    def __init__(self, keys: int, path: Path) -> None:
        self._path = path
        rng = np.random.default_rng(1)
        self._hashes = np.sort(rng.integers(0, 2**64, keys, dtype=np.uint64))
        self._columns = [
            pa.array(np.arange(keys)),
            pa.array(np.arange(keys)),
            pa.array(np.arange(keys) * 1.5),
        ]

    def run(self, rng: np.random.Generator) -> float:
        """Milliseconds of an epoch."""
        keys = len(self._hashes)
        chosen = rng.choice(keys, min(keys, BATCH_ROWS), replace=False)
        started = time.perf_counter()
        places = pa.array(np.searchsorted(self._hashes, self._hashes[chosen]))
        columns = [pc.take(column, places) for column in self._columns]
        table = pa.Table.from_arrays(columns, names=["user", "n", "spend"])
        pq.write_table(table, self._path, compression="zstd")
        return (time.perf_counter() - started) * 1000


def restores(run: Run, folder: Path, keys: int) -> None:
    """With and without the cache, against reading the same Parquet.

    The cache is filled beside the first lookups. A round begins when that is over, as the only restore of
    a process does.
    """
    run.say(f"filling {keys:,} keys")
    call("fill", folder, keys)
    files = [str(path) for path in (folder / "store").rglob("*.parquet")]

    def read(number: int) -> list[float]:
        started = time.perf_counter()
        for file in files:
            pq.read_table(file)
        return [(time.perf_counter() - started) * 1000]

    def cold(number: int) -> list[float]:
        ms = restore(folder, folder / f"cold-{number}")
        _wait_for_writers()
        shutil.rmtree(folder / f"cold-{number}")
        return [ms]

    def warm(number: int) -> list[float]:
        restore(folder, folder / "cache")
        return [restore(folder, folder / "cache")]

    contenders = {PYARROW: read, COLD: cold, WARM: warm, FIRST: lambda _: [call("restore", folder, keys)]}
    run.compare("restore", contenders, {KEYS: keys}, repetitions=run.pick(whole=4, quick=2), warm_up=1)


def memory(run: Run, folder: Path, sizes: list[int]) -> None:
    """Of a process that runs one epoch, and of one that holds the state as Arrow."""
    for size in sizes:
        here = folder / str(size)
        contenders = {
            OURS: lambda _, here=here, size=size: [call("memory", here, size)],
            PYARROW: lambda _, here=here, size=size: [call("arrow", here, size)],
        }
        run.compare("memory", contenders, {KEYS: size}, repetitions=1)


def _wait_for_writers() -> None:
    """Until all threads that write are free at the same time."""
    all_free = threading.Barrier(WRITERS_MAX + 1)
    for _ in range(WRITERS_MAX):
        writers().submit(all_free.wait)
    all_free.wait()
