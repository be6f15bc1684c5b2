"""A `TimeKeyTable` over several subtasks against a list of rows."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from tests.support.jobs.time_key_job import TimeKeyJob
from tests.support.small_files import shape_as_large

from lakestate.protocol.key_ranges import key_range_of
from lakestate.storage.cache.run_cache import RunCache
from lakestate.tables.hashing.routing import routing_keys
from lakestate.tables.time_key.table import TimeKeyTable

RETENTION_US = 20
BEGINNING_US = -(10**9)

SCHEMA = pa.schema(
    [("user", pa.string()), ("item", pa.int32()), ("n", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))]
)


class Row(NamedTuple):
    user: str | None
    item: int | None
    n: int
    ts: int


def colliding(columns: list[pa.Array]) -> np.ndarray:
    """Three hashes for all keys, far enough apart to lie in different subtasks."""
    return (routing_keys(columns) % np.uint64(3)) * np.uint64(2**62)


USERS = st.sampled_from([None, "", "ann", "bob", "eve", "zoë"])
ITEMS = st.sampled_from([None, 1, 2])
# Around the watermark: most rows are alive, some come too late.
TIMES = st.integers(-24, 30)
BATCHES = st.lists(st.builds(Row, USERS, ITEMS, st.integers(0, 3), TIMES), min_size=1, max_size=12)
ADVANCES = st.integers(0, 5)
ENDS = st.none() | TIMES
KEYS = st.lists(st.tuples(USERS, ITEMS), max_size=5)


class TimeKeyMachine(RuleBasedStateMachine):
    route_by: ClassVar[list[str] | None] = None
    hash: ClassVar[Callable[..., np.ndarray]] = staticmethod(routing_keys)
    caches: ClassVar[bool] = False
    fetches_columns: ClassVar[bool] = False
    """Whether files have the shape of large ones, so that columns are fetched alone."""

    @initialize(parallelism=st.integers(1, 3), batches=st.lists(BATCHES, min_size=2, max_size=4))
    def begin(self, parallelism: int, batches: list[list[Row]]) -> None:
        table = TimeKeyTable(
            "rows",
            key="user string, item int",
            value="n bigint, ts timestamp",
            route_by=self.route_by,
            retention=f"{RETENTION_US} us",
        )
        table._hash = self.hash
        self.shape = shape_as_large() if self.fetches_columns else ExitStack()
        self.folder = tempfile.mkdtemp() if self.caches else None
        cache = RunCache(Path(self.folder), 1 << 26) if self.folder else None
        self.job = TimeKeyJob(table, parallelism, watermark_us=0, cache=cache)
        self.rows: list[Row] = []
        self.floors = [BEGINNING_US] * parallelism
        for batch in batches:
            self.run_an_epoch([batch], advance=1)

    def teardown(self) -> None:
        if hasattr(self, "shape"):
            self.shape.close()
        if getattr(self, "folder", None):
            # The cache may still be being filled beside the test.
            shutil.rmtree(self.folder, ignore_errors=True)

    def at(self, offset: int) -> int:
        return (self.job.watermark_us or 0) + offset

    def span(self, *ends: int | None) -> tuple[int | None, ...]:
        return tuple(None if end is None else self.at(end) for end in ends)

    def save(self) -> None:
        self.saved = (list(self.rows), list(self.floors), self.job.watermark_us)

    def owners(self, rows: list[Row]) -> list[int]:
        return self.job.owner(as_table(rows)) if rows else []

    def drop_dead(self) -> None:
        retained = (self.job.watermark_us or 0) - RETENTION_US
        owners = self.owners(self.rows)
        self.rows = [
            row
            for row, owner in zip(self.rows, owners, strict=True)
            if row.ts >= max(retained, self.floors[owner])
        ]

    @rule(batch=BATCHES)
    def insert(self, batch: list[Row]) -> None:
        batch = [row._replace(ts=self.at(row.ts)) for row in batch]
        self.job.insert(as_table(batch))
        self.rows += batch
        self.drop_dead()

    @rule(keys=st.lists(st.tuples(USERS, ITEMS), min_size=1, max_size=3))
    def delete(self, keys: list[tuple[str | None, int | None]]) -> None:
        self.job.delete(as_keys(keys))
        self.rows = [row for row in self.rows if row[:2] not in keys]

    @rule(batch=BATCHES, keys=st.lists(st.tuples(USERS, ITEMS), min_size=1, max_size=3), again=BATCHES)
    def replace_rows(
        self, batch: list[Row], keys: list[tuple[str | None, int | None]], again: list[Row]
    ) -> None:
        """Rows that are inserted after the delete, in the same epoch, live."""
        self.insert(batch)
        self.delete(keys)
        self.insert(again)

    @rule(place=st.integers(0, 6), before=st.integers(-20, 10))
    def expire(self, place: int, before: int) -> None:
        index, before = place % self.job.parallelism, self.at(before)
        self.job.subtasks[index].state.expire(before)
        self.floors[index] = max(self.floors[index], before)
        self.drop_dead()

    @rule(batches=st.lists(BATCHES, min_size=1, max_size=3), advance=ADVANCES)
    def run_an_epoch(self, batches: list[list[Row]], advance: int) -> None:
        """Most of what is written becomes stored before something else happens to it."""
        for batch in batches:
            self.insert(batch)
        self.checkpoint(advance)

    @rule(advance=ADVANCES)
    def checkpoint(self, advance: int) -> None:
        self.job.checkpoint((self.job.watermark_us or 0) + advance)
        self.save()
        self.drop_dead()
        for subtask in self.job.subtasks:
            subtask.state.forget_before(self.job.epoch)

    @rule()
    def crash(self) -> None:
        self.job.restore()
        rows, floors, _ = self.saved
        self.rows, self.floors = list(rows), list(floors)
        self.drop_dead()

    @rule(parallelism=st.integers(1, 7))
    def rescale(self, parallelism: int) -> None:
        rows, floors, _ = self.saved
        self.job.restore(parallelism)
        old = [key_range_of(index, len(floors)) for index in range(len(floors))]
        self.floors = [
            min(
                floor
                for floor, keys in zip(floors, old, strict=True)
                if keys.overlaps(key_range_of(index, parallelism))
            )
            for index in range(parallelism)
        ]
        self.rows = list(rows)
        retained = (self.job.watermark_us or 0) - RETENTION_US
        self.rows = [row for row in self.rows if row.ts >= retained]
        self.job.checkpoint()
        self.save()

    @rule()
    def compact(self) -> None:
        for index in range(self.job.parallelism):
            self.job.compact(index)

    @rule(start=ENDS, end=ENDS)
    def rows_between(self, start: int | None, end: int | None) -> None:
        start, end = self.span(start, end)
        found: list[Row] = []
        for subtask in self.job.subtasks:
            part = as_rows(subtask.state.rows_between(start, end))
            assert [row.ts for row in part] == sorted(row.ts for row in part)
            found += part
        assert ordered(found) == ordered([row for row in self.rows if inside(row, start, end)])

    @rule(start=ENDS, end=ENDS, columns=st.lists(st.sampled_from(["n", "ts"]), unique=True))
    def some_columns(self, start: int | None, end: int | None, columns: list[str]) -> None:
        start, end = self.span(start, end)
        names = ["user", "item", *columns]
        tables = [subtask.state.rows_between(start, end, columns) for subtask in self.job.subtasks]
        assert [table.column_names for table in tables] == [names] * len(tables)
        found = pa.concat_tables(tables).to_pylist()
        wanted = [row for row in self.rows if inside(row, start, end)]
        assert sorted(map(repr, found)) == sorted(map(repr, as_table(wanted).select(names).to_pylist()))

    @rule(keys=KEYS, start=ENDS, end=ENDS)
    def rows_of(self, keys: list[tuple[str | None, int | None]], start: int | None, end: int | None) -> None:
        asked = as_keys(keys)
        start, end = self.span(start, end)
        found: list[list[Row]] = [[] for _ in keys]
        owners = self.job.owner(asked)
        for index, subtask in enumerate(self.job.subtasks):
            mine = [place for place, owner in enumerate(owners) if owner == index]
            part = subtask.state.rows_of(asked.take(pa.array(mine, pa.int64())), start, end)
            queries = part.column("__query").to_pylist()
            assert queries == sorted(queries)
            for query, row in zip(queries, as_rows(part), strict=True):
                found[mine[query]].append(row)
        for key, rows in zip(keys, found, strict=True):
            wanted = [row for row in self.rows if row[:2] == key and inside(row, start, end)]
            assert ordered(rows) == ordered(wanted)

    @invariant()
    def all_rows_are_there(self) -> None:
        if not hasattr(self, "job"):
            return
        states = [subtask.state for subtask in self.job.subtasks]
        found = [Row(**without_zone(row)) for row in self.job.rows()]
        assert ordered(found) == ordered(self.rows)
        assert sum(state.count() for state in states) == len(self.rows)
        earliest = [time for state in states if (time := state.min_time()) is not None]
        assert min(earliest, default=None) == min((row.ts for row in self.rows), default=None)


SCHEMA_KEYS = pa.schema([SCHEMA.field("user"), SCHEMA.field("item")])


def as_table(rows: list[Row]) -> pa.Table:
    columns = {name: [getattr(row, name) for row in rows] for name in Row._fields}
    return pa.table(columns, schema=SCHEMA)


def as_keys(keys: list[tuple[str | None, int | None]]) -> pa.Table:
    columns = {"user": [key[0] for key in keys], "item": [key[1] for key in keys]}
    return pa.table(columns, schema=SCHEMA_KEYS)


def as_rows(table: pa.Table) -> list[Row]:
    return [Row(**without_zone(row)) for row in table.select(Row._fields).to_pylist()]


def without_zone(row: dict[str, object]) -> dict[str, object]:
    return row | {"ts": pa.scalar(row["ts"], SCHEMA.field("ts").type).value}


def inside(row: Row, start: int | None, end: int | None) -> bool:
    return (start is None or start <= row.ts) and (end is None or row.ts < end)


def ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=repr)


class FineKeyMachine(TimeKeyMachine):
    route_by = ("user",)
    caches = True


class CollidingMachine(TimeKeyMachine):
    hash = staticmethod(colliding)
    fetches_columns = True


class CollidingFineKeyMachine(TimeKeyMachine):
    route_by = ("user",)
    hash = staticmethod(colliding)


STEPS = settings(
    max_examples=8,
    stateful_step_count=30,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
MACHINES = (TimeKeyMachine, FineKeyMachine, CollidingMachine, CollidingFineKeyMachine)
for _machine in MACHINES:
    _machine.TestCase.settings = STEPS

TestAKeyOfTwoColumns = TimeKeyMachine.TestCase
TestAKeyFinerThanTheRoute = FineKeyMachine.TestCase
TestKeysThatCollide = CollidingMachine.TestCase
TestFineKeysThatCollide = CollidingFineKeyMachine.TestCase


@pytest.mark.soak
@pytest.mark.parametrize("machine", MACHINES)
def test_long_lives_of_the_table(machine: type[TimeKeyMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(STEPS, max_examples=50, stateful_step_count=60))
