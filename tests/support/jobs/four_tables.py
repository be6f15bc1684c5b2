"""A job with a table of each type, random epochs, and what the tables must then hold."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
from tests.support.jobs.table_job import EAGER, TableJob

import lakestate as ls
from lakestate.tables.hashing.routing import routing_keys, subtasks_of

Rows = list[dict[str, Any]]

TS = pa.timestamp("us", tz="UTC")
TOTALS = ls.KeyedTable("totals", key="user string, item int", value="n bigint", route_by=["user"])
SEEN = ls.KeyedTable("seen", key="user string", value="at timestamp", ttl=ls.Ttl("20 us", column="at"))
CLICKS = ls.TimeKeyTable("clicks", key="user string", value="n bigint, ts timestamp", retention="20 us")
LIMITS = ls.GlobalKeyedTable("limits", key=str, value=int)


def owned(job: TableJob, index: int, users: list[str]) -> list[str]:
    owners = subtasks_of(routing_keys([pa.array(users, pa.string())]), job.parallelism)
    return [user for user, owner in zip(users, owners.tolist(), strict=True) if owner == index]


@dataclass
class Model:
    """What the tables must hold."""

    totals: dict[tuple[str, int], int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    clicks: list[tuple[str, int, int]] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)

    def rows(self, watermark: int) -> dict[str, Rows]:
        alive = watermark - 20
        found = {
            "totals": [{"user": u, "item": i, "n": n} for (u, i), n in self.totals.items()],
            "seen": [{"user": u, "at": time(t)} for u, t in self.seen.items() if t >= alive],
            "clicks": [{"user": u, "n": n, "ts": time(t)} for u, n, t in self.clicks if t >= alive],
            "limits": [{"key": key, "value": value} for key, value in self.limits.items()],
        }
        return {name: sorted(rows, key=repr) for name, rows in found.items()}


def time(us: int) -> datetime:
    return pa.scalar(us, TS).as_py()


USERS = [f"user-{number}" for number in range(12)]


def run_epoch(job: TableJob, model: Model, rng: random.Random, now: int) -> None:
    for index, manager in enumerate(job.managers):
        users = owned(job, index, USERS)
        for user in users:
            item, n = rng.randrange(3), rng.randrange(100)
            if rng.random() < 0.6:
                row = pa.table({"user": [user], "item": pa.array([item], pa.int32()), "n": [n]})
                manager.keyed("totals").put(row)
                model.totals[user, item] = n
            elif rng.random() < 0.7:
                manager.keyed("totals").delete(
                    pa.table({"user": [user], "item": pa.array([item], pa.int32())})
                )
                model.totals.pop((user, item), None)
            at = now + rng.randrange(-15, 15)
            if rng.random() < 0.5:
                manager.keyed("seen").put(pa.table({"user": [user], "at": pa.array([at], TS)}))
                model.seen[user] = at
            if rng.random() < 0.1:
                manager.time_key("clicks").delete(pa.table({"user": [user]}))
                model.clicks = [click for click in model.clicks if click[0] != user]
            manager.time_key("clicks").insert(pa.table({"user": [user], "n": [n], "ts": pa.array([at], TS)}))
            model.clicks.append((user, n, at))
    key = rng.choice("abc")
    if rng.random() < 0.5:
        job.managers[0].global_keyed("limits").insert(key, now)
        model.limits[key] = now
    else:
        job.managers[0].global_keyed("limits").remove(key)
        model.limits.pop(key, None)


TABLES = (TOTALS, SEEN, CLICKS, LIMITS)


def run_history(job: TableJob, seed: int) -> dict[int, dict[str, Rows]]:
    """Random epochs with rescaling and compaction, and the rows of each table at the end of each epoch."""
    rng, model = random.Random(seed), Model()
    expected: dict[int, dict[str, Rows]] = {}
    for now in range(10, 130, 10):
        run_epoch(job, model, rng, now)
        epoch = job.checkpoint(watermark_us=now)
        expected[epoch] = model.rows(now)
        if rng.random() < 0.5:
            job.compact(EAGER)
        if rng.random() < 0.6:
            job.restart(parallelism=rng.randrange(1, 5))
    return expected
