"""Global keyed tables: a large checkpoint, and small epochs on a large state.

One million inserts and their checkpoint against the same work by hand: encode the same pairs with msgspec,
write the same Parquet, upload; once from two lists, and once from a dict that is filled first, as one
large dict must be. Then epochs of one row, each opened from the host's run cache as by another process, on
states of different sizes; and the epochs of 64 subtasks that all write.

Contenders run in turns in the same run, because the machine's speed varies; the ratios are the medians
of the turns.
"""

from __future__ import annotations

import gc
import statistics
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pyarrow as pa
import xxhash

import lakestate as ls
from lakestate.ambient import SystemAmbient
from lakestate.coordinator.compact import CompactedOperator
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import TableFiles
from lakestate.protocol.values import Epoch, TaskInfo
from lakestate.storage import open_store
from lakestate.tables.context import TableContext
from lakestate.tables.global_keyed.files import SCHEMA
from lakestate.tables.global_keyed.table import GlobalKeyedTable
from lakestate.tables.manager import SubtaskCheckpoint, TableManager
from lakestate.tables.runs.parquet import encode_run

ROWS = 1_000_000
TURNS = 5
LIMIT = 1.5
SIZES = (1_000, 200_000, 1_000_000)
SMALL_EPOCHS = 40
WARM_UP = 5
SMALL_LIMIT = 1.2
SUBTASKS = 64


class Account(msgspec.Struct, frozen=True):
    id: int
    name: str
    spend: float


def context() -> TableContext:
    objects = JobObjects(open_store(f"memory://{uuid.uuid4().hex}"), "job")
    return TableContext(TaskInfo("job", "op"), objects, None, SystemAmbient(), None, 0)


def with_table(keys: list[Any], values: list[Any], value_type: type) -> None:
    table = GlobalKeyedTable("bench", key=str, value=value_type)
    nothing, where = TableFiles("bench", table.table_type), context()
    view = table.open_view(nothing, where)
    insert = view.insert
    for key, value in zip(keys, values, strict=True):
        insert(key, value)
    checkpointer = table.epoch_checkpointer(Epoch(1), nothing, where)
    view.checkpoint_into(checkpointer)
    view.begin_next_epoch(checkpointer.finish().files, where)


def by_hand_from_a_dict(keys: list[Any], values: list[Any]) -> None:
    state = {}
    for key, value in zip(keys, values, strict=True):
        state[key] = value  # noqa: PERF403 - rows arrive one by one
    by_hand(list(state), list(state.values()))


def by_hand(keys: list[Any], values: list[Any]) -> None:
    encode = msgspec.msgpack.Encoder().encode
    columns = [pa.array([encode(item) for item in items], pa.binary()) for items in (keys, values)]
    rows = pa.table(columns, schema=SCHEMA)
    data = encode_run(rows, {})
    xxhash.xxh3_64_intdigest(data)
    context().objects.store.put("by-hand.parquet", memoryview(data).cast("B"))


def measure_seconds(work: Callable[[], None]) -> tuple[float, float]:
    """Wall-clock seconds and processor seconds: the latter are more reliable on a shared machine."""
    gc.collect()
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def measure(name: str, keys: list[Any], values: list[Any], value_type: type) -> None:
    works: list[Callable[[], None]] = [
        lambda: with_table(keys, values, value_type),
        lambda: by_hand(keys, values),
        lambda: by_hand_from_a_dict(keys, values),
    ]
    turns = [[measure_seconds(work) for work in works] for _ in range(TURNS)]
    print(f"{name}, ratio to by hand from lists (aim: at most {LIMIT}), and from a dict:")
    for kind, label in enumerate(["clock", "processor"]):
        seconds = [[contender[kind] for contender in turn] for turn in turns]
        from_lists = statistics.median(turn[0] / turn[1] for turn in seconds)
        from_dict = statistics.median(turn[0] / turn[2] for turn in seconds)
        medians = ", ".join(f"{statistics.median(column):.2f} s" for column in zip(*seconds, strict=True))
        print(f"  {label:9} {from_lists:.2f} {from_dict:.2f}  ({medians})")


class SmallEpochs:
    """An operator with some entries whose epochs change one row in each subtask, with a host's cache."""

    def __init__(self, entries: int, parallelism: int, folder: Path) -> None:
        self.backend = ls.ParquetBackend(f"memory://{uuid.uuid4().hex}", cache_dir=folder)
        self.table = GlobalKeyedTable("bench", key=str, value=Account)
        self.parallelism = parallelism
        self.epoch = 0
        self.merges: CompactedOperator | None = None
        self.first_reads: list[float] = []
        """What opening the table and reading one entry took in each subtask, in seconds."""
        rows = {f"user-{number:07d}": Account(number, "name", 0.5) for number in range(entries)}
        self.run_epoch(rows)

    def run_epoch(self, rows: dict[str, Account]) -> float:
        """Open the newest epoch in each subtask, read and write one row or `rows`, publish; seconds used."""
        self.epoch += 1
        started = time.process_time()
        done = [self._run_subtask(index, rows) for index in range(self.parallelism)]
        self.backend.write_checkpoint_metadata("job", self.epoch, done)
        return time.process_time() - started

    def _run_subtask(self, index: int, rows: dict[str, Account]) -> SubtaskCheckpoint:
        task = TaskInfo("job", "op", index, self.parallelism)
        restore_from = self.epoch - 1 or None
        tables = TableManager.load(task, [self.table], self.backend, restore_from)
        if self.merges is not None:
            tables.apply_compacted(self.merges.of_subtask(index))
        view = tables.global_keyed("bench")
        for key, value in (rows if index == 0 else {}).items():
            view.insert(key, value)
        if not rows:
            key = f"user-{(self.epoch * 7 + index) % 1000:07d}"
            started = time.process_time()
            found = view.get(key) or Account(0, "new", 0.5)
            self.first_reads.append(time.process_time() - started)
            view.insert(key, msgspec.structs.replace(found, spend=found.spend + 1))
        return tables.checkpoint(self.epoch, 1, None, False)

    def compact(self) -> float:
        """Merge beside the stream what is worth it; seconds used."""
        started = time.process_time()
        self.merges = self.backend.compact_operator("job", "op", tables=[self.table])
        return time.process_time() - started

    def count_files(self) -> int:
        """The number of data files of the newest epoch."""
        stored = self.backend.load_operator_metadata("job", self.epoch, "op")
        return sum(len(table.files) for metadata in stored.values() for table in metadata.tables)


def measure_small_epochs() -> None:
    print("epoch of one row, opened from the host's cache, processor time")
    with TemporaryDirectory() as folder:
        jobs = {size: SmallEpochs(size, 1, Path(folder) / str(size)) for size in SIZES}
        turns: dict[int, list[float]] = {size: [] for size in SIZES}
        for turn in range(SMALL_EPOCHS + WARM_UP):
            for size, job in jobs.items():
                seconds = job.run_epoch({})
                if turn >= WARM_UP:
                    turns[size].append(seconds)
                job.compact()
    for size in SIZES:
        ratio = statistics.median(
            one / other for one, other in zip(turns[size], turns[SIZES[0]], strict=True)
        )
        shown = statistics.median(turns[size]) * 1000
        print(f"  {size:9,} entries {shown:6.1f} ms  {ratio:.2f} (aim: at most {SMALL_LIMIT})")


def measure_many_subtasks() -> None:
    """Without compaction, so that the number of files grows."""
    print(f"{SUBTASKS} subtasks that write one row each, on 200,000 entries, processor time of a subtask")
    with TemporaryDirectory() as folder:
        job = SmallEpochs(200_000, SUBTASKS, Path(folder))
        for epochs in (8, 8, 16):
            for _ in range(epochs):
                job.first_reads = []
                job.run_epoch({})
            first, *others = sorted(job.first_reads, reverse=True)
            print(
                f"  epoch {job.epoch:2}, {job.count_files():5,} files: open and read one entry "
                f"{statistics.median(others) * 1000:.1f} ms; {first * 1000:.0f} ms in the first subtask, "
                "which merges the files of the last epoch"
            )
        print(f"  merging all files beside the stream: {job.compact() * 1000:.0f} ms")


def main() -> None:
    keys = [f"user-{number * 7_919 % ROWS:07d}" for number in range(ROWS)]
    measure("str to int", keys, [number * 31 for number in range(ROWS)], int)
    accounts = [Account(number, f"name {number}", number / 7) for number in range(ROWS)]
    measure("str to struct", keys, accounts, Account)
    del keys, accounts
    measure_small_epochs()
    measure_many_subtasks()


if __name__ == "__main__":
    main()
