"""Global keyed tables against plain dicts, over subtasks, crashes, rescaling and merges."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.support.jobs.replicated_operator import ReplicatedOperator

from lakestate.storage.cache.run_cache import RunCache
from lakestate.tables.global_keyed import layer_plan, reader
from lakestate.tables.global_keyed.table import GlobalKeyedTable

KEYS = st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, -0.0, 1.0]))
VALUES = st.integers(0, 5) | st.none()
SUBTASKS = st.integers(0, 11)
REMOVED = object()
# Hypothesis likes short runs: a step is worth more if it changes several entries.
CHANGES = st.lists(st.tuples(SUBTASKS, KEYS, VALUES | st.just(REMOVED)), min_size=1, max_size=8)
Change = dict[Any, Any]


class GlobalKeyedModel(RuleBasedStateMachine):
    """What each subtask sees is a dict; what an epoch holds is all changes, in order of subtask."""

    def __init__(self) -> None:
        super().__init__()
        table = GlobalKeyedTable("t", key=tuple[str, float], value=int | None)
        self.operator = ReplicatedOperator(table, parallelism=2)
        self.published: dict[Any, Any] = {}
        self.reset(2)

    def move(self) -> None:
        """To another host. Without a run cache, hosts do not differ."""

    def reset(self, parallelism: int) -> None:
        self.seen = [dict(self.published) for _ in range(parallelism)]
        self._begin_epoch()

    @rule(changes=CHANGES)
    def write(self, changes: list[tuple[int, Any, Any]]) -> None:
        for subtask, key, value in changes:
            if value is REMOVED:
                self._remove(subtask % len(self.seen), key)
            else:
                self._insert(subtask % len(self.seen), key, value)

    @rule(changes=CHANGES, keeps_one=st.booleans())
    def write_and_checkpoint(self, changes: list[tuple[int, Any, Any]], keeps_one: bool) -> None:
        self.write(changes)
        self.checkpoint(keeps_one)

    @rule(subtask=SUBTASKS, key=KEYS)
    def get(self, subtask: int, key: Any) -> None:
        subtask %= len(self.seen)
        view, model = self.operator.views[subtask], self.seen[subtask]
        assert (view.get(key, "none"), key in view) == (model.get(key, "none"), key in model)

    @rule(subtask=SUBTASKS)
    def read_all(self, subtask: int) -> None:
        subtask %= len(self.seen)
        view, model = self.operator.views[subtask], self.seen[subtask]
        assert (view.get_all(), len(view), set(view)) == (model, len(model), set(model))

    @rule(keeps_one=st.booleans())
    def checkpoint(self, keeps_one: bool) -> None:
        done = self.operator.checkpoint(min_epoch=self.operator.epoch + 1 if keeps_one else 1)
        assert [finished.bytes_written > 0 for finished in done] == [bool(part) for part in self.changed]
        for changed in self.changed:
            self._publish(changed)
        self._begin_epoch()

    @rule(parallelism=st.integers(1, 4), on_a_new_host=st.booleans())
    def crash_and_restore(self, parallelism: int, on_a_new_host: bool) -> None:
        if on_a_new_host:
            self.move()
        self.operator.restore(parallelism)
        self.reset(parallelism)

    @rule(types=st.booleans())
    @precondition(lambda self: len({file.epoch for file in self.operator.files.files}) > 1)
    def compact(self, types: bool) -> None:
        table = self.operator.table
        self.operator.compact(table=table if types else GlobalKeyedTable.from_config(table.config))

    @invariant()
    def every_file_is_carried_once(self) -> None:
        if self.operator.last and len(self.operator.last) == len(self.operator.contexts):
            assert self.operator.carried_once()

    def _insert(self, subtask: int, key: Any, value: int | None) -> None:
        self.operator.views[subtask].insert(key, value)
        self.seen[subtask][key] = value
        self.changed[subtask][key] = value

    def _remove(self, subtask: int, key: Any) -> None:
        assert self.operator.views[subtask].remove(key) == self.seen[subtask].pop(key, None)
        self.changed[subtask].pop(key, None)
        if key in self.before[subtask]:
            self.changed[subtask][key] = REMOVED

    def _begin_epoch(self) -> None:
        self.before = [set(seen) for seen in self.seen]
        self.changed: list[Change] = [{} for _ in self.seen]

    def _publish(self, changed: Change) -> None:
        for key, value in changed.items():
            if value is REMOVED:
                self.published.pop(key, None)
            else:
                self.published[key] = value


class CachedGlobalKeyedModel(GlobalKeyedModel):
    """The same with a run cache on each host, lookups that search, and several layers."""

    def __init__(self) -> None:
        self.folders = ExitStack()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(reader, "ENTRIES_PER_LOOKUP", 0.001)
        self.patch.setattr(layer_plan, "MERGED_BYTES_MIN", 0)
        self.move()
        super().__init__()

    def move(self) -> None:
        folder = self.folders.enter_context(TemporaryDirectory())
        cache = RunCache(Path(folder), 1 << 30)
        self.patch.setattr(ReplicatedOperator, "find_cache", staticmethod(lambda: cache))

    def teardown(self) -> None:
        self.patch.undo()
        self.folders.close()


SETTINGS = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestGlobalKeyedModel = GlobalKeyedModel.TestCase
TestGlobalKeyedModel.settings = SETTINGS
TestCachedGlobalKeyedModel = CachedGlobalKeyedModel.TestCase
TestCachedGlobalKeyedModel.settings = SETTINGS


@pytest.mark.soak
@pytest.mark.parametrize("model", [GlobalKeyedModel, CachedGlobalKeyedModel])
def test_long_lives_of_the_table(model: type[GlobalKeyedModel]) -> None:
    run_state_machine_as_test(model, settings=settings(SETTINGS, max_examples=20, stateful_step_count=80))
