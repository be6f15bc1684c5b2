"""Two small jobs below one checkpoint URL, for tests of what looks at them: the same at every run.

`shop` is an operator with a sink, run by the driver of production. `clicks` has a table of each other
type, several subtasks and a watermark, and is driven by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakestate as ls
from lakestate.config import StoreConfig
from lakestate.tables.hashing.routing import routing_keys, subtasks_of
from lakestate.testing.chained_job import ChainedJob

NOON_US = 1_767_268_800_000_000
"""2026-01-01T12:00:00Z"""

STARTED_MS = 1_700_000_000_000
"""2023-11-14T22:13:20Z"""

ORDERS = (
    [("ada", 9.5), ("bob", 1.0), ("cyd", 3.0)],
    [("ada", 0.5), ("dan", 7.25)],
    [("bob", 2.0), ("cyd", -1.0)],
    [("eve", 4.0)],
)
"""The orders of each epoch. A negative amount forgets the user."""


PARTS_MS = {"trigger": 50.0, "scan": 100.0, "input": 25.0, "lookup": 10.0, "operator": 5.5, "commit": 9.5}
"""Where the time of an epoch of the shop went."""


class Totals(ls.Operator):
    """Counts and sums orders."""

    input = "user string, amount double"
    output = "user string, n bigint, spend double"
    totals = ls.KeyedTable(key="user string", value="n bigint, spend double")

    def process_batch(self, batch: pa.RecordBatch, ctx: Any) -> Iterator[pa.RecordBatch]:
        rows = pa.table(batch)
        gone = rows.filter(pc.less(rows["amount"], 0)).select(["user"])
        self.totals.delete(gone)
        added = rows.filter(pc.greater_equal(rows["amount"], 0))
        before = self.totals.get(added.select(["user"]))
        new = pa.table(
            {
                "user": added["user"],
                "n": pc.add(before["n"].fill_null(0), 1),
                "spend": pc.add(before["spend"].fill_null(0), added["amount"]),
            }
        )
        self.totals.put(new)
        yield from new.to_batches()


def shop_sinks(out: str, roll: str = "1GB") -> dict[str, ls.ParquetSink]:
    return {"out": ls.ParquetSink(out, roll=ls.Roll(bytes=roll))}


class MinuteAmbient:
    """A clock that stands still until the next epoch, a minute later, and numbered names."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ids = count(1)
        self._now_ms = STARTED_MS

    def now_ms(self) -> int:
        return self._now_ms

    def new_id(self) -> str:
        return f"{self._name}-{next(self._ids)}"

    def next_minute(self) -> None:
        self._now_ms += 60_000


def backend_of(where: str | Path | StoreConfig, name: str) -> ls.ParquetBackend:
    return ls.ParquetBackend(where, cache_bytes=0, ambient=MinuteAmbient(name))


def next_minute(backend: ls.ParquetBackend) -> None:
    if isinstance(backend.ambient, MinuteAmbient):
        backend.ambient.next_minute()


def shop_job(
    where: str | Path | StoreConfig | ls.ParquetBackend, out: str, job_id: str = "shop", roll: str = "1GB"
) -> ChainedJob:
    """A driver of the shop, with two subtasks, which continues after its newest epoch."""
    sink = shop_sinks(out, roll)["out"]
    backend = where if isinstance(where, ls.ParquetBackend) else backend_of(where, job_id)
    return ChainedJob(
        Totals(), backend, key="user", parallelism=2, sink=sink, job_id=job_id, operator_id="per_user"
    )


def run_orders(job: ChainedJob, epochs: Iterable[Sequence[tuple[str, float]]]) -> None:
    """Run an epoch for each list of orders."""
    for orders in epochs:
        next_minute(job.backend)
        # As if the epoch before had run on Spark, and always as fast.
        job.driver.parent_parts_ms = {} if job.driver.parent is None else dict(PARTS_MS)
        users, amounts = zip(*orders, strict=True)
        job.epoch(pa.table({"user": users, "amount": amounts}))


def make_shop(where: str | Path | StoreConfig, out: str, job_id: str = "shop", roll: str = "1GB") -> None:
    """Run the epochs of `ORDERS`."""
    run_orders(shop_job(where, out, job_id, roll), ORDERS)


def click_tables() -> list[Any]:
    return [
        ls.TimeKeyTable(
            "seen", key="user string", value="ts timestamp, page string", time="ts", retention="1 hour"
        ),
        ls.KeyedTable("items", key="user string, item int", value="raw binary", route_by=["user"]),
        ls.GlobalKeyedTable("rates", key=str, value=dict[str, float]),
    ]


def make_clicks(where: str | Path | StoreConfig) -> None:
    """Two epochs of three tables, in two subtasks."""
    backend = backend_of(where, "clicks")
    tasks = [ls.TaskInfo("clicks", "pages", index, 2) for index in range(2)]
    managers = [ls.TableManager.load(task, click_tables(), backend, None) for task in tasks]
    users = pa.array(["ada", "bob", "cyd"])
    owners = subtasks_of(routing_keys([users]), 2)
    for epoch in (1, 2):
        next_minute(backend)
        times = pa.array([NOON_US + epoch * 60_000_000 + n for n in range(3)], pa.timestamp("us", tz="UTC"))
        seen = pa.table({"user": users, "ts": times, "page": [f"page-{epoch}"] * 3})
        raw = [bytes([epoch, n]) for n in range(3)]
        items = pa.table({"user": users, "item": pa.array([epoch] * 3, pa.int32()), "raw": raw})
        for index, manager in enumerate(managers):
            mine = pa.array(np.equal(owners, index))
            manager.time_key("seen").insert(seen.filter(mine))
            manager.keyed("items").put(items.filter(mine))
        managers[0].global_keyed("rates").insert("EUR", {"USD": 1.0 + epoch / 8})
        watermark_us = NOON_US + epoch * 60_000_000
        done = [manager.checkpoint(epoch, 1, watermark_us, False) for manager in managers]
        backend.write_checkpoint_metadata("clicks", epoch, done, watermark_us=watermark_us)


def memory_sinks() -> dict[str, ls.ParquetSink]:
    """The sinks of the shop whose output is in memory; a command finds them by this name."""
    return shop_sinks("memory://shop-out")
