"""Global keyed tables: a large checkpoint, and small epochs on a large state."""

from __future__ import annotations

import gc
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import xxhash

import lakestate as ls
from benchmarks.core import Benchmark, Contender, Point, Question, Run, at_most
from benchmarks.core.run import alternate
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
LIMIT = 1.5
SIZES = (1_000, 200_000, 1_000_000)
SMALL_EPOCHS = 40
WARM_UP = 5
SMALL_LIMIT = 1.2
SUBTASKS = 64
OURS, LISTS, DICT = "Lakestate", "by hand from lists", "by hand from a dict"
ENTRIES, VALUES = "entries in state", "values"

BENCHMARK = Benchmark(
    name="global_keyed",
    title="Global keyed tables",
    text=(
        "Processor times without Spark. One million inserts and their checkpoint, against the same work by "
        "hand: encode the same pairs with msgspec, write the same Parquet, upload; once from two lists, and "
        "once from a dict that is filled first, as one large dict must be. Then epochs of one row, each "
        "opened from the host's run cache as by another process."
    ),
    contenders=(
        Contender(OURS, "all defaults; compaction after each small epoch, which does not count"),
        Contender(LISTS, "msgspec, the same Parquet encoding, a store in memory"),
        Contender(DICT, "the same, from a dict that is filled row by row"),
    ),
    questions=(
        Question(
            "inserts",
            "Processor time of inserts and a checkpoint",
            "ms",
            aims=(
                at_most(
                    LIMIT,
                    "inserts of numbers and a checkpoint, against by hand from lists",
                    Point(OURS, {VALUES: "numbers"}),
                    Point(LISTS, {VALUES: "numbers"}),
                    why="a view looks each key up before it inserts it, one call for each row.",
                ),
                at_most(
                    LIMIT,
                    "the same with structs",
                    Point(OURS, {VALUES: "structs"}),
                    Point(LISTS, {VALUES: "structs"}),
                    why="each struct is decoded once to check its type.",
                ),
            ),
        ),
        Question(
            "epoch",
            "Processor time of an epoch of one row, by entries in state",
            "ms",
            axis=ENTRIES,
            aims=(
                at_most(
                    SMALL_LIMIT,
                    "an epoch of one row with 1M entries in state, against 1,000",
                    Point(OURS, {ENTRIES: 1_000_000}),
                    Point(OURS, {ENTRIES: 1_000}),
                    why="a larger layer is mapped and searched.",
                ),
            ),
        ),
        Question(
            "files",
            "Processor time to open the table in one of 64 subtasks and read an entry, by files",
            "ms",
            axis="files",
            text=(
                "64 subtasks write one row each into 200,000 entries, without compaction, so that the "
                "number of files grows. The first subtask of a host merges the files of the last epoch "
                "for the others and is not shown."
            ),
        ),
    ),
    seconds=(20, 130),
)


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


def processor_ms(work: Callable[[], None]) -> float:
    """Processor time: other work on the machine affects it less."""
    gc.collect()
    started = time.process_time()
    work()
    return (time.process_time() - started) * 1000


def measure(run: Run) -> None:
    rows = run.pick(whole=ROWS, quick=ROWS // 10)
    keys = [f"user-{number * 7_919 % rows:07d}" for number in range(rows)]
    measure_inserts(run, "numbers", keys, [number * 31 for number in range(rows)], int)
    accounts = [Account(number, f"name {number}", number / 7) for number in range(rows)]
    measure_inserts(run, "structs", keys, accounts, Account)
    del keys, accounts
    measure_small_epochs(run)
    measure_many_subtasks(run)


def measure_inserts(run: Run, name: str, keys: list[Any], values: list[Any], value_type: type) -> None:
    contenders = {
        OURS: lambda _: [processor_ms(lambda: with_table(keys, values, value_type))],
        LISTS: lambda _: [processor_ms(lambda: by_hand(keys, values))],
        DICT: lambda _: [processor_ms(lambda: by_hand_from_a_dict(keys, values))],
    }
    run.compare("inserts", contenders, {VALUES: name}, repetitions=run.pick(whole=4, quick=2), warm_up=1)


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


def measure_small_epochs(run: Run) -> None:
    """Sizes take turns: they are compared with each other."""
    sizes, epochs = run.pick(whole=SIZES, quick=SIZES[:2]), run.pick(whole=SMALL_EPOCHS, quick=10)
    with run.folder() as folder:
        jobs = {str(size): SmallEpochs(size, 1, folder / str(size)) for size in sizes}
        for turn, size in alternate([*jobs], epochs + WARM_UP):
            seconds = jobs[size].run_epoch({})
            if turn >= WARM_UP:
                run.record("epoch", OURS, [seconds * 1000], {ENTRIES: int(size)})
            jobs[size].compact()


def measure_many_subtasks(run: Run) -> None:
    """Without compaction, so that the number of files grows."""
    with run.folder() as folder:
        job = SmallEpochs(200_000, SUBTASKS, folder)
        for epochs in run.pick(whole=(8, 8, 16), quick=(2,)):
            run.say(f"64 subtasks, {epochs} epochs")
            for _ in range(epochs):
                job.first_reads = []
                job.run_epoch({})
            others = sorted(job.first_reads)[:-1]
            run.record("files", OURS, [seconds * 1000 for seconds in others], {"files": job.count_files()})
