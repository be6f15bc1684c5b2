"""A `KeyedTable` against a dict, over random histories of writes, crashes, rescaling and upkeep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.support.jobs.table_job import EAGER, PARTIAL, TableJob
from tests.support.small_files import shape_as_large

from lakestate.errors import InvalidInputError
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.tables.hashing.routing import routing_keys, subtasks_of
from lakestate.tables.keyed.table import KeyedTable
from lakestate.tables.manager import TableManager
from lakestate.tables.migration.migrations import ColumnChanges

Key = tuple[str | None, int | None]
Value = tuple[object, ...]

SCHEMA = pa.schema([("user", pa.string()), ("item", pa.int32())])
keys = st.tuples(st.one_of(st.none(), st.sampled_from(["", "a", "b", "ü", "x" * 40])), st.integers(0, 3))
values = st.tuples(st.integers(-3, 3), st.one_of(st.none(), st.sampled_from([0.0, -1.5, 1e300])))


def colliding(columns: Sequence[pa.Array]) -> np.ndarray:
    """Eight hashes for all keys, spread over the key space."""
    return (routing_keys(columns) >> np.uint64(61)) << np.uint64(61)


class KeyedModel(RuleBasedStateMachine):
    """Two-column keys, routed by both."""

    hash: Callable[[Sequence[pa.Array]], np.ndarray] = staticmethod(routing_keys)
    route_by: Sequence[str] | None = None
    fetches_columns = False
    """Whether files have the shape of large ones, and nothing is cached."""

    @initialize(parallelism=st.integers(1, 4))
    def start(self, parallelism: int) -> None:
        self.version = 1
        self.shape = shape_as_large() if self.fetches_columns else ExitStack()
        self.job = TableJob([self.table()], parallelism, caches=not self.fetches_columns)
        self.model: dict[Key, Value] = {}
        self.published: dict[int, tuple[int, dict[Key, Value]]] = {}

    def table(self) -> KeyedTable:
        extra = "" if self.version == 1 else ", note string"
        table = KeyedTable(
            "t",
            key="user string, item int",
            value=f"n bigint, x double{extra}",
            route_by=self.route_by,
            version=self.version,
            migrations=[ColumnChanges(1, add={"note": ("string", "new")})] if self.version > 1 else [],
        )
        table._hash = type(self).hash
        return table

    @rule(rows=st.lists(st.tuples(keys, values), max_size=12))
    def put(self, rows: list[tuple[Key, Value]]) -> None:
        padded = [(key, self.padded(value)) for key, value in rows]
        for manager, part in self.routed([key for key, _ in rows]):
            manager.keyed("t").put(self.arrow([padded[index] for index in part]))
        self.model.update(padded)

    @rule(gone=st.lists(keys, max_size=6))
    def delete(self, gone: list[Key]) -> None:
        for manager, part in self.routed(gone):
            manager.keyed("t").delete(key_table([gone[index] for index in part]))
        for key in gone:
            self.model.pop(key, None)

    @rule(asked=st.lists(keys, max_size=12))
    def get(self, asked: list[Key]) -> None:
        for manager, part in self.routed(asked):
            wanted = [asked[index] for index in part]
            found, rows = manager.keyed("t").lookup(key_table(wanted))
            answers = [
                tuple(row.values()) if there else None
                for there, row in zip(found.to_pylist(), rows.to_pylist(), strict=True)
            ]
            assert answers == [self.model.get(key) for key in wanted]

    @rule(asked=st.lists(keys, max_size=12), columns=st.lists(st.sampled_from(["n", "x"]), unique=True))
    def get_columns(self, asked: list[Key], columns: list[str]) -> None:
        places = [["n", "x"].index(name) for name in columns]
        for manager, part in self.routed(asked):
            wanted = [self.model.get(asked[index]) for index in part]
            found, rows = manager.keyed("t").lookup(key_table([asked[index] for index in part]), columns)
            assert found.to_pylist() == [value is not None for value in wanted]
            expected = [tuple(None if value is None else value[p] for p in places) for value in wanted]
            assert [tuple(row.values()) for row in rows.to_pylist()] == expected
        found_keys = [
            (row["user"], row["item"], *(row[name] for name in columns))
            for manager in self.job.managers
            for batch in manager.keyed("t").scan(columns)
            for row in batch.to_pylist()
        ]
        expected_rows = [(*key, *(value[p] for p in places)) for key, value in self.model.items()]
        assert sorted(found_keys, key=repr) == sorted(expected_rows, key=repr)

    @rule(asked=st.lists(keys, max_size=6))
    def get_prefix(self, asked: list[Key]) -> None:
        """By the user alone if rows are routed by it; a whole key is its own prefix."""
        width = 2 if self.route_by is None else 1
        for manager, part in self.routed(asked):
            wanted = [asked[index] for index in part]
            found = manager.keyed("t").get_prefix(key_table(wanted).select(list(range(width))))
            queries = found.column("__query").to_pylist()
            assert queries == sorted(queries)
            rows = [tuple(row.values()) for row in found.to_pylist()]
            expected = [
                (place, *key, *value)
                for place, prefix in enumerate(wanted)
                for key, value in self.model.items()
                if key[:width] == prefix[:width]
            ]
            assert sorted(rows, key=repr) == sorted(expected, key=repr)

    @rule()
    def scan(self) -> None:
        assert contents(self.job.managers) == self.model
        assert sum(manager.keyed("t").count() for manager in self.job.managers) == len(self.model)

    @rule()
    def checkpoint(self) -> None:
        epoch = self.job.checkpoint()
        self.published[epoch] = (self.version, dict(self.model))

    @rule(back=st.integers(0, 3), forward=st.integers(1, 3))
    @precondition(lambda self: self.job.epoch is not None)
    def checkpoint_something_that_goes_back(self, back: int, forward: int) -> None:
        """It is refused before anything is written, and the tables continue as if nobody had asked."""
        assert self.job.epoch is not None
        before = {info.path for info in self.job.backend.objects("job").store.list()}
        past, later = max(1, self.job.epoch - back), self.job.epoch + 1
        for manager in self.job.managers:
            with pytest.raises(InvalidInputError, match="not after the last one"):
                manager.checkpoint(past, 1, None, False)
            with pytest.raises(InvalidInputError, match="min_epoch"):
                manager.checkpoint(later, later + forward, None, False)
        assert {info.path for info in self.job.backend.objects("job").store.list()} == before

    @rule(parallelism=st.integers(1, 5))
    def crash_and_restore(self, parallelism: int) -> None:
        self.job.restart(parallelism)
        self.model = self.last_published()

    @rule(policy=st.sampled_from([EAGER, PARTIAL]))
    def compact(self, policy: CompactionPolicy) -> None:
        self.job.compact(policy)

    @rule(
        steps=st.lists(st.tuples(keys, st.one_of(st.none(), values)), min_size=2, max_size=6),
        policy=st.sampled_from([EAGER, PARTIAL]),
    )
    def several_small_epochs_and_a_merge(
        self, steps: list[tuple[Key, Value | None]], policy: CompactionPolicy
    ) -> None:
        for key, value in steps:
            self.delete([key]) if value is None else self.put([(key, value)])
            self.checkpoint()
        self.job.compact(policy)
        self.crash_and_restore(self.job.parallelism)
        self.scan()

    @rule(keep=st.integers(1, 3))
    def retain(self, keep: int) -> None:
        self.job.retain(keep)

    @precondition(lambda self: self.version == 1)
    @rule()
    def upgrade(self) -> None:
        self.model = self.last_published()
        self.version = 2
        self.model = {key: self.padded(value[:2]) for key, value in self.model.items()}
        self.job.restart(tables=[self.table()])
        self.published = {
            epoch: (2, {key: self.padded(value[:2]) for key, value in rows.items()})
            for epoch, (_, rows) in self.published.items()
        }

    @precondition(lambda self: bool(self.published))
    @rule(back=st.integers(0, 2), parallelism=st.integers(1, 5))
    def open_an_older_epoch(self, back: int, parallelism: int) -> None:
        epoch = max(max(self.published) - back, self.job.oldest)
        opened = self.job.opened(epoch, parallelism)
        assert contents(opened) == self.published[epoch][1]

    def teardown(self) -> None:
        if hasattr(self, "job"):
            self.job.close()
            self.shape.close()

    def padded(self, value: Value) -> Value:
        return value if self.version == 1 else (*value, "new")

    def last_published(self) -> dict[Key, Value]:
        return dict(self.published[max(self.published)][1]) if self.published else {}

    def arrow(self, rows: list[tuple[Key, Value]]) -> pa.Table:
        names = ["user", "item", "n", "x", "note"][: 2 + len(self.padded((0, 0)))]
        types = [pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.string()]
        columns = zip(*[(*key, *value) for key, value in rows], strict=True)
        return pa.table({name: pa.array(c, t) for name, c, t in zip(names, columns, types, strict=False)})

    def routed(self, asked: list[Key]) -> list[tuple[TableManager, list[int]]]:
        """The rows that each subtask gets, by position."""
        if not asked:
            return []
        table = key_table(asked)
        routing = self.job.tables[0].config.routing_columns
        hashes = type(self).hash([table.column(name).combine_chunks() for name in routing])
        owners = subtasks_of(hashes, self.job.parallelism)
        return [
            (manager, part)
            for index, manager in enumerate(self.job.managers)
            if (part := np.flatnonzero(owners == index).tolist())
        ]


class FineKeyModel(KeyedModel):
    """Many keys share one routing key, and columns are fetched alone."""

    route_by = ("user",)
    fetches_columns = True


class CollidingModel(KeyedModel):
    """Different keys have equal hashes."""

    hash = staticmethod(colliding)


class CollidingFineKeyModel(KeyedModel):
    """Both at once."""

    hash = staticmethod(colliding)
    route_by = ("user",)


def key_table(asked: list[Key]) -> pa.Table:
    columns = list(zip(*asked, strict=True)) or [(), ()]
    return pa.table([pa.array(c, t) for c, t in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def contents(managers: Sequence[TableManager]) -> dict[Key, Value]:
    rows = [
        tuple(row.values())
        for manager in managers
        for batch in manager.keyed("t").scan()
        for row in batch.to_pylist()
    ]
    found = {(row[0], row[1]): row[2:] for row in rows}
    assert len(found) == len(rows), "a key appears twice"
    return found


STEPS = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
MACHINES = (KeyedModel, FineKeyModel, CollidingModel, CollidingFineKeyModel)
for _machine in MACHINES:
    _machine.TestCase.settings = STEPS

TestKeyed = KeyedModel.TestCase
TestFineKey = FineKeyModel.TestCase
TestColliding = CollidingModel.TestCase
TestCollidingFineKey = CollidingFineKeyModel.TestCase


@pytest.mark.soak
@pytest.mark.parametrize("machine", MACHINES)
def test_long_lives_of_the_table(machine: type[KeyedModel]) -> None:
    run_state_machine_as_test(machine, settings=settings(STEPS, max_examples=50, stateful_step_count=60))
