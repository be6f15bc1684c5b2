"""An epoch of a `KeyedTable` against its floor, for several sizes of state. All ratios are of one run.

python -m benchmarks keyed
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import lakestate as ls
from lakestate.tables.writers import WRITERS_MAX, writers

BATCH_ROWS = 60_000
ROUNDS = 9
SIZES = (100_000, 1_000_000, 10_000_000)
TABLE = ls.KeyedTable("totals", key="user bigint", value="n bigint, spend double")
TASK = ls.TaskInfo("bench", "op")


def main() -> None:
    """Print all figures."""
    with tempfile.TemporaryDirectory(prefix="lakestate-bench-") as folder:
        epochs(Path(folder))
    with tempfile.TemporaryDirectory(prefix="lakestate-bench-") as folder:
        restore(Path(folder))
    memory()


def epochs(folder: Path) -> None:
    """One epoch of get, put and checkpoint at each size, and the bare floor at one million."""
    times = {size: _epoch_ms(folder / str(size), size) for size in SIZES}
    floor_ms = _floor_ms(folder, 1_000_000)
    print(f"epoch of {BATCH_ROWS:,} get + put + checkpoint, local files, median of {ROUNDS}:")
    for size, (get_ms, put_ms, checkpoint_ms, total_ms) in times.items():
        print(
            f"  {size:>10,} keys: {total_ms:6.1f} ms "
            f"(get {get_ms:.1f}, put {put_ms:.1f}, checkpoint {checkpoint_ms:.1f})"
        )
    print(f"  floor at 1,000,000 keys (searchsorted, take, one Parquet write): {floor_ms:.1f} ms")
    print(f"  ratio 10M keys / 100k keys: {times[10_000_000][3] / times[100_000][3]:.2f} (aim: at most 1.3)")
    print(f"  ratio 1M keys / floor:      {times[1_000_000][3] / floor_ms:.2f} (aim: at most 2)")


def restore(folder: Path, keys: int = 5_000_000) -> None:
    """Restoring with and without the cache, against reading the same Parquet.

    The cache is filled beside the first lookups. A round begins when that is over, as the only
    restore of a process does.
    """
    _fill(folder, keys)
    files = [str(path) for path in (folder / "store").rglob("*.parquet")]
    read_ms = _median_ms(lambda: [pq.read_table(file) for file in files], 3)
    cold = []
    for number in range(3):
        cold.append(_median_ms(lambda: _restore_once(folder, f"cold-{number}"), 1))  # noqa: B023
        _wait_for_writers()
    cold_ms = statistics.median(cold)
    warm_ms = _median_ms(lambda: _restore_once(folder, "cold-0"), 5)
    command = [sys.executable, "-m", "benchmarks.bench_keyed", "restore", str(folder)]
    first_ms = statistics.median(float(subprocess.check_output(command)) for _ in range(3))
    print(f"restore of {keys:,} keys and a first lookup:")
    print(f"  reading the Parquet with pyarrow: {read_ms:.0f} ms")
    print(f"  cold: {cold_ms:.0f} ms, ratio {cold_ms / read_ms:.2f} (aim: at most 2)")
    print(f"  warm: {warm_ms:.1f} ms, ratio {warm_ms / cold_ms:.3f} of cold (aim: at most 0.05)")
    print(f"  warm, the first time in a process: {first_ms:.1f} ms, ratio {first_ms / cold_ms:.3f} of cold")


def _restore_once(folder: Path, cache: str) -> None:
    backend = _backend(folder, folder / cache)
    tables = ls.TableManager.load(TASK, [TABLE], backend, restore_from=1)
    found = tables.keyed("totals").get(pa.table({"user": [1, 2, 3]})).column(0).to_pylist()
    assert found == [1, 2, 3]


def _first_restore_of_a_process(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="lakestate-bench-") as name:
        # Modules are imported when they are first used.
        _fill(Path(name), 4)
        _restore_once(Path(name), "cache")
    print(_median_ms(lambda: _restore_once(folder, "cold-0"), 1))


def memory() -> None:
    """Peak memory of a process that restores from a warm cache and runs one epoch."""
    print("peak memory of one epoch in a new process (private memory, without mapped files):")
    for size in SIZES:
        command = [sys.executable, "-m", "benchmarks.bench_keyed", str(size)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        print(f"  {size:>10,} keys: {done.stdout.strip()}")


def _memory_of_one_epoch(size: int) -> None:
    with tempfile.TemporaryDirectory(prefix="lakestate-bench-") as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "benchmarks.bench_keyed", str(size), name], check=True)
        # Modules are imported when they are first used: that memory is not the epoch's.
        _fill(folder / "warm-up", 1)
        before = _private_kb()
        tables = ls.TableManager.load(TASK, [TABLE], _backend(folder, folder / "cache"), restore_from=1)
        _run_epoch(tables, 2, _draw_keys(size, np.random.default_rng(1)))
        after = _private_kb()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        grown_mb, peak_mb = (after - before) / 1024, peak / 1024
        print(f"{grown_mb:6.1f} MB more private memory after it; peak {peak_mb:.0f} MB with maps")


def _private_kb() -> int:
    text = Path("/proc/self/smaps_rollup").read_text()
    lines = {line.split(":")[0]: line.split() for line in text.splitlines() if ":" in line}
    return int(lines["Anonymous"][1])


def _fill(folder: Path, keys: int) -> None:
    tables = ls.TableManager.load(TASK, [TABLE], _backend(folder, folder / "cache"), restore_from=None)
    users = np.arange(keys)
    tables.keyed("totals").put(pa.table({"user": users, "n": users, "spend": users * 1.5}))
    done = tables.checkpoint(1, 1, None, False)
    _backend(folder, folder / "cache").write_checkpoint_metadata("bench", 1, [done])


def _backend(folder: Path, cache: Path) -> ls.ParquetBackend:
    (folder / "store").mkdir(parents=True, exist_ok=True)
    return ls.ParquetBackend(f"file://{folder / 'store'}", cache_dir=cache)


def _epoch_ms(folder: Path, keys: int) -> tuple[float, float, float, float]:
    _fill(folder, keys)
    # An epoch waits for the disk. What remains to be written of the state is not its own.
    os.sync()
    rng = np.random.default_rng(1)
    rounds = []
    for number in range(ROUNDS + 2):
        asked = _draw_keys(keys, rng)
        # Every epoch starts from the store, as it does in a Spark worker.
        backend = _backend(folder, folder / "cache")
        started = time.perf_counter()
        tables = ls.TableManager.load(TASK, [TABLE], backend, restore_from=1)
        get_ms, put_ms, checkpoint_ms = _run_epoch(tables, number + 2, asked)
        rounds.append((get_ms, put_ms, checkpoint_ms, (time.perf_counter() - started) * 1000))
    return tuple(statistics.median(column) for column in zip(*rounds[2:], strict=True))  # type: ignore[return-value]


def _draw_keys(keys: int, rng: np.random.Generator) -> pa.Table:
    return pa.table({"user": rng.choice(keys, BATCH_ROWS, replace=False)})


def _run_epoch(tables: ls.TableManager, epoch: int, asked: pa.Table) -> tuple[float, float, float]:
    view = tables.keyed("totals")
    marks = [time.perf_counter()]
    old = view.get(asked)
    marks.append(time.perf_counter())
    rows = asked.append_column("n", pc.add(old.column("n"), 1)).append_column("spend", old.column("spend"))
    view.put(rows)
    marks.append(time.perf_counter())
    tables.checkpoint(epoch, 1, None, False)
    marks.append(time.perf_counter())
    get_ms, put_ms, checkpoint_ms = ((b - a) * 1000 for a, b in pairwise(marks))
    return get_ms, put_ms, checkpoint_ms


def _floor_ms(folder: Path, keys: int) -> float:
    rng = np.random.default_rng(1)
    state = np.sort(rng.integers(0, 2**64, keys, dtype=np.uint64))
    n, spend = pa.array(np.arange(keys)), pa.array(np.arange(keys) * 1.5)
    users = pa.array(np.arange(keys))

    def floor() -> None:
        asked = state[rng.choice(keys, BATCH_ROWS, replace=False)]
        places = pa.array(np.searchsorted(state, asked))
        columns = [pc.take(column, places) for column in (users, n, spend)]
        table = pa.Table.from_arrays(columns, names=["user", "n", "spend"])
        pq.write_table(table, folder / "floor.parquet", compression="zstd")

    return _median_ms(floor, ROUNDS)


def _wait_for_writers() -> None:
    """Until all threads that write are free at the same time."""
    all_free = threading.Barrier(WRITERS_MAX + 1)
    for _ in range(WRITERS_MAX):
        writers().submit(all_free.wait)
    all_free.wait()


def _median_ms(work: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["restore", folder]:
            _first_restore_of_a_process(Path(folder))
        case [size, folder]:
            _fill(Path(folder), int(size))
        case [size]:
            _memory_of_one_epoch(int(size))
        case _:
            main()
