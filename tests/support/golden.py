"""Makes the golden checkpoint of the current format. Run once per format version, then never again.

    python -m tests.support.golden tests/compat/v1

What it writes is checked in; `test_golden.py` reads it with every later version.
"""

from __future__ import annotations

import datetime as dt
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakestate as ls
from lakestate.tables.contract import Table
from lakestate.tables.hashing.routing import routing_keys, subtasks_of
from lakestate.tables.manager import TableManager

NOON_US = int(dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC).timestamp() * 1_000_000)
SECOND_US = 1_000_000
PARALLELISM = 2
USERS = [None, "", "ada", "grace", "josé", "x" * 50]


def tables() -> list[Table]:
    return [
        ls.KeyedTable(
            "totals",
            key="user string",
            value="n bigint, spend double, price decimal(12,2), seen timestamp, day date, tags array<string>",
        ),
        ls.KeyedTable(
            "items", key="user string, item int", value="ok boolean, raw binary", route_by=["user"]
        ),
        ls.TimeKeyTable(
            "events", key="user string", value="ts timestamp, kind string", time="ts", retention="1 hour"
        ),
        ls.GlobalKeyedTable("offsets", key=str, value=tuple[int, list[str]]),
    ]


def rows_of_epoch(epoch: int) -> dict[str, pa.Table]:
    """What each epoch writes. The last one of a key wins."""
    users = pa.array(USERS)
    count = len(USERS)
    times = pa.array(
        [NOON_US + epoch * SECOND_US + index for index in range(count)], pa.timestamp("us", tz="UTC")
    )
    totals = pa.table(
        {
            "user": users,
            "n": [epoch * 100 + index for index in range(count)],
            "spend": [epoch + index / 4 for index in range(count)],
            "price": pa.array([None, *range(1, count)], pa.int32()).cast(pa.decimal128(12, 2)),
            "seen": times,
            "day": pa.array([epoch * 1000 + index for index in range(count)], pa.int32()).cast(pa.date32()),
            "tags": pa.array([["a", None], [], None, ["b"], ["c"], ["d"]], pa.list_(pa.string())),
        }
    )
    items = pa.table(
        {
            "user": users,
            "item": pa.array([epoch] * count, pa.int32()),
            "ok": [index % 2 == 0 for index in range(count)],
            "raw": [bytes([epoch, index]) for index in range(count)],
        }
    )
    events = pa.table({"user": users, "ts": times, "kind": [f"k{epoch}"] * count})
    return {"totals": totals, "items": items, "events": events}


def write_epoch(managers: list[TableManager], epoch: int) -> None:
    for name, rows in rows_of_epoch(epoch).items():
        owners = subtasks_of(routing_keys([rows.column("user").combine_chunks()]), len(managers))
        for index, manager in enumerate(managers):
            mine = rows.filter(pa.array(np.equal(owners, index)))
            if name == "events":
                manager.time_key(name).insert(mine)
            else:
                manager.keyed(name).put(mine)
            if name == "totals" and epoch == 3:
                gone = mine.select(["user"]).filter(pa.compute.equal(mine.column("user"), "grace"))
                manager.keyed(name).delete(gone)
    for index, manager in enumerate(managers):
        manager.global_keyed("offsets").insert(f"part-{index}", (epoch, ["x"] * epoch))
        if epoch == 2:
            manager.global_keyed("offsets").insert("shared", (index, []))
        if epoch == 3:
            manager.global_keyed("offsets").remove("part-1")


def main(target: Path) -> None:
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as cache:
        backend = ls.ParquetBackend(f"file://{target.resolve()}", cache_dir=cache)
        for epoch in (1, 2, 3):
            tasks = [ls.TaskInfo("golden", "op", index, PARALLELISM) for index in range(PARALLELISM)]
            restore_from = None if epoch == 1 else epoch - 1
            managers = [TableManager.load(task, tables(), backend, restore_from) for task in tasks]
            write_epoch(managers, epoch)
            watermark_us = NOON_US + epoch * SECOND_US
            done = [manager.checkpoint(epoch, 1, watermark_us, False) for manager in managers]
            backend.write_checkpoint_metadata("golden", epoch, done, watermark_us=watermark_us)
    hidden = target / ".lakestate"
    for path in sorted(hidden.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    hidden.rmdir()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
