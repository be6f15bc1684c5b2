"""A stored `KeyedTable` of some size, and what is measured of it in processes of their own.

    python -m benchmarks.state.keyed_state fill|restore|memory FOLDER KEYS

A process that filled a large table, or that has used a table before, is not one that a job starts with.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakestate as ls

BATCH_ROWS = 60_000
FILL_ROWS = 10_000_000
"""Keys that are put at once: memory is bounded."""
TABLE = ls.KeyedTable("totals", key="user bigint", value="n bigint, spend double")
TASK = ls.TaskInfo("bench", "op")


def call(act: str, folder: Path, keys: int) -> float:
    """Do something in a process of its own; the number that it prints."""
    command = [sys.executable, "-m", "benchmarks.state.keyed_state", act, str(folder), str(keys)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{act} of {keys:,} keys failed: {done.stderr[-500:]}")
    return float(done.stdout)


def open_backend(folder: Path, cache: Path) -> ls.ParquetBackend:
    """The store of a folder, with some cache."""
    (folder / "store").mkdir(parents=True, exist_ok=True)
    return ls.ParquetBackend(f"file://{folder / 'store'}", cache_dir=cache)


def fill(folder: Path, keys: int) -> None:
    """Epoch 1 of a table with so many keys: one run for every ten million."""
    backend = open_backend(folder, folder / "cache")
    tables = ls.TableManager.load(TASK, [TABLE], backend, restore_from=None)
    for first in range(0, keys, FILL_ROWS):
        users = np.arange(first, min(keys, first + FILL_ROWS))
        tables.keyed("totals").put(pa.table({"user": users, "n": users, "spend": users * 1.5}))
    done = tables.checkpoint(1, 1, None, False)
    backend.write_checkpoint_metadata("bench", 1, [done])


def restore(folder: Path, cache: Path) -> float:
    """Milliseconds to open epoch 1 and look three keys up."""
    started = time.perf_counter()
    tables = ls.TableManager.load(TASK, [TABLE], open_backend(folder, cache), restore_from=1)
    found = tables.keyed("totals").get(pa.table({"user": [1, 2, 3]})).column(0).to_pylist()
    assert found == [1, 2, 3]
    return (time.perf_counter() - started) * 1000


def draw_keys(keys: int, rng: np.random.Generator) -> pa.Table:
    """The keys that an epoch reads and writes; all of them if there are few."""
    return pa.table({"user": rng.choice(keys, min(keys, BATCH_ROWS), replace=False)})


def run_epoch(tables: ls.TableManager, epoch: int, asked: pa.Table) -> dict[str, float]:
    """Milliseconds of each part of an epoch."""
    view = tables.keyed("totals")
    marks = [time.perf_counter()]
    old = view.get(asked)
    marks.append(time.perf_counter())
    rows = asked.append_column("n", pc.add(old.column("n"), 1)).append_column("spend", old.column("spend"))
    view.put(rows)
    marks.append(time.perf_counter())
    tables.checkpoint(epoch, 1, None, False)
    marks.append(time.perf_counter())
    return dict(zip(("get", "put", "checkpoint"), ((b - a) * 1000 for a, b in pairwise(marks)), strict=True))


def _fill_and_say(folder: Path, keys: int) -> None:
    fill(folder, keys)
    print(keys)


def _first_restore(folder: Path, keys: int) -> None:
    _warm_up()
    print(restore(folder, folder / "cache"))


def _memory(folder: Path, keys: int) -> None:
    _warm_up()
    before = _private_kb()
    backend = open_backend(folder, folder / "cache")
    tables = ls.TableManager.load(TASK, [TABLE], backend, restore_from=1)
    run_epoch(tables, 2, draw_keys(keys, np.random.default_rng(1)))
    print((_private_kb() - before) * 1024)


def _arrow_memory(folder: Path, keys: int) -> None:
    import pyarrow.parquet as pq

    before = _private_kb()
    files = [pq.read_table(path) for path in (folder / "store").rglob("*.parquet")]
    assert sum(len(rows) for rows in files) >= keys
    print((_private_kb() - before) * 1024)


def _warm_up() -> None:
    """Modules are imported when they are first used: that is not what is measured."""
    with tempfile.TemporaryDirectory(prefix="lakestate-bench-") as name:
        fill(Path(name), 4)
        restore(Path(name), Path(name) / "cache")


def _private_kb() -> int:
    if not Path("/proc/self/smaps_rollup").exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = Path("/proc/self/smaps_rollup").read_text()
    lines = {line.split(":")[0]: line.split() for line in text.splitlines() if ":" in line}
    return int(lines["Anonymous"][1])


ACTS: dict[str, Callable[[Path, int], None]] = {
    "fill": _fill_and_say,
    "restore": _first_restore,
    "memory": _memory,
    "arrow": _arrow_memory,
}

if __name__ == "__main__":
    ACTS[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
