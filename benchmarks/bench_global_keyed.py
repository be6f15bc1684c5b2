"""One million inserts into a global keyed table and their checkpoint, against the same work by hand.

By hand: encode the same pairs with msgspec, write the same Parquet, upload; once from two lists, and once
from a dict that is filled first, as `get` requires. Both run in turns in the same run, because the
machine's speed varies; the ratios are the medians of the turns.
"""

from __future__ import annotations

import gc
import statistics
import time
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import xxhash

from lakestate.ambient import SystemAmbient
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import TableFiles
from lakestate.protocol.values import Epoch, TaskInfo
from lakestate.storage import open_store
from lakestate.tables.context import TableContext
from lakestate.tables.global_keyed.files import SCHEMA
from lakestate.tables.global_keyed.table import GlobalKeyedTable
from lakestate.tables.runs.parquet import encode_run

ROWS = 1_000_000
TURNS = 5
LIMIT = 1.5


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


def main() -> None:
    keys = [f"user-{number * 7_919 % ROWS:07d}" for number in range(ROWS)]
    measure("str to int", keys, [number * 31 for number in range(ROWS)], int)
    accounts = [Account(number, f"name {number}", number / 7) for number in range(ROWS)]
    measure("str to struct", keys, accounts, Account)


if __name__ == "__main__":
    main()
