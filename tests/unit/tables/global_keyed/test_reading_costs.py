"""What reading and writing costs: how much is decoded, fetched and kept, not how long it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.support.jobs.replicated_operator import TOTALS, ReplicatedOperator, operator_with

from lakestate.errors import InvalidInputError
from lakestate.storage.cache.run_cache import RunCache
from lakestate.tables.global_keyed import reader
from lakestate.tables.global_keyed.table import GlobalKeyedTable
from lakestate.tables.migration.values import MigratableState

pytestmark = pytest.mark.parametrize("host", ["one-host"], indirect=True)


class Counted:
    """Says how often its subclasses were made, which decoding does."""

    made: ClassVar[Counter[str]] = Counter()

    def __post_init__(self) -> None:
        self.made[type(self).__name__] += 1


@dataclass(frozen=True)
class Key(Counted):
    id: int


@dataclass(frozen=True)
class Value(Counted, MigratableState):
    n: int
    VERSION = 1


@dataclass(frozen=True)
class ValueV2(Counted, MigratableState):
    n: int
    VERSION = 2
    PREVIOUS = Value

    @classmethod
    def migrate(cls, previous: Value) -> ValueV2:
        return cls(previous.n * 10)


NUMBERED = GlobalKeyedTable("numbered", key=Key, value=Value)


@pytest.fixture(autouse=True)
def _many_entries(monkeypatch: pytest.MonkeyPatch, host: str) -> Iterator[None]:
    monkeypatch.setattr(reader, "ENTRIES_PER_LOOKUP", 8)
    yield
    Counted.made.clear()


def opened(entries: dict[Any, Any], table: GlobalKeyedTable) -> ReplicatedOperator:
    """An operator of two epochs, just restored."""
    operator = operator_with(entries, table)
    operator.restore(1)
    return operator


def made(*operations: Any) -> dict[str, int]:
    """What was decoded meanwhile."""
    Counted.made.clear()
    for operation in operations:
        operation()
    return dict(Counted.made)


def test_reading_one_of_many_entries_decodes_its_value_alone() -> None:
    key, absent = Key(700), Key(5000)
    operator = opened({Key(number): Value(number) for number in range(1000)}, NUMBERED)
    view = operator.views[0]
    # The key is decoded to compare it with the given one.
    assert made(lambda: view.get(key)) == {"Key": 1, "Value": 1}
    assert made(lambda: view.get(key)) == {}
    assert made(lambda: view.get(absent)) == {"Key": 1}
    assert made(lambda: absent in view) == {"Key": 1}
    assert view.get(key) == Value(700)


def test_counting_and_asking_for_a_key_decode_no_value() -> None:
    operator = opened(
        {f"{number}": Value(number) for number in range(1000)}, GlobalKeyedTable("t", key=str, value=Value)
    )
    view = operator.views[0]
    assert made(lambda: len(view), lambda: "7" in view, lambda: "x" in view) == {}
    assert len(view) == 1000


def test_an_epoch_of_one_row_decodes_one_value_and_encodes_one() -> None:
    table = GlobalKeyedTable("t", key=str, value=Value)
    operator = opened({f"{number}": Value(number) for number in range(1000)}, table)
    new = Value(8)
    # Encoding a value decodes it once, to check its type.
    assert made(
        lambda: operator.views[0].get("7"), lambda: operator.views[0].insert("7", new), operator.checkpoint
    ) == {"Value": 2}


def test_removing_decodes_the_value_that_it_returns() -> None:
    table = GlobalKeyedTable("t", key=str, value=Value)
    operator = opened({f"{number}": Value(number) for number in range(1000)}, table)
    assert made(lambda: operator.views[0].remove("7"), operator.checkpoint) == {"Value": 1}
    operator.restore(1)
    assert made(lambda: operator.views[0].get("7"), lambda: len(operator.views[0])) == {}
    assert (len(operator.views[0]), "7" in operator.views[0]) == (999, False)


def test_a_value_of_an_older_version_is_migrated_alone() -> None:
    operator = operator_with(
        {number: Value(number) for number in range(1000)}, GlobalKeyedTable("t", key=int, value=Value)
    )
    operator.restore(1, GlobalKeyedTable("t", key=int, value=ValueV2))
    operator.views[0].insert(1, ValueV2(5))
    operator.checkpoint()
    operator.restore(1)
    view = operator.views[0]
    assert made(lambda: view.get(7)) == {"Value": 1, "ValueV2": 1}
    assert (view.get(7), view.get(1)) == (ValueV2(70), ValueV2(5))


def test_whoever_reads_many_entries_gets_all_of_them_decoded_once() -> None:
    table = GlobalKeyedTable("t", key=int, value=Value)
    view = opened({number: Value(number) for number in range(1000)}, table).views[0]
    found: list[Value] = []
    assert made(lambda: found.extend(view.get(number) for number in range(1000))) == {
        "Value": 1000 + 1000 // 8
    }
    assert found == [Value(number) for number in range(1000)]
    assert all(view.get(number) is found[number] for number in range(1000))


def test_an_object_that_was_read_stays_the_same_object() -> None:
    view = opened(
        {number: Value(number) for number in range(1000)}, GlobalKeyedTable("t", key=int, value=Value)
    ).views[0]
    one = view.get(7)
    assert view.get_all()[7] is one


@pytest.mark.parametrize(
    ("key", "stored", "given"),
    [
        (int, 1, True),
        (int, 1, 1.0),
        (int, 1, np.int64(1)),
        (bool, True, 1),
        (float, 1.0, True),
        (float, 0.0, -0.0),
        (str, "a", np.str_("a")),
        (bytes, b"a", memoryview(b"a")),
        (tuple[str, int], ("a", 1), ("a", 1.0)),
        (tuple[str, int], ("a", 1), ("a", np.int64(1))),
    ],
)
def test_a_key_that_equals_a_stored_one_finds_its_value(
    key: Any, stored: Any, given: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "ENTRIES_PER_LOOKUP", 0.001)
    view = opened({stored: 5}, GlobalKeyedTable("t", key=key, value=int)).views[0]
    assert (view.get(given), given in view) == (5, True)


@pytest.mark.parametrize(
    ("key", "stored", "given"),
    [
        (int, 1, None),
        (int, 1, "1"),
        (int, 1, 1.5),
        (int, 1, float("nan")),
        (int, 1, 2**70),
        (bytes, b"a", 10**15),
        (str, "a", b"a"),
        (str, "a", "\ud800"),
        (str, "a", 1),
        (str, "a", ("a",)),
        (float, 1.0, float("nan")),
        (tuple[str, int], ("a", 1), None),
        (tuple[str, int], ("a", 1), ("a", 1, 1)),
    ],
    ids=lambda case: ascii(case),
)
def test_a_key_that_cannot_be_stored_is_not_there(
    key: Any, stored: Any, given: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "ENTRIES_PER_LOOKUP", 0.001)
    view = opened({stored: 5}, GlobalKeyedTable("t", key=key, value=int)).views[0]
    assert (view.get(given, "none"), given in view, view.remove(given)) == ("none", False, None)
    assert view.get_all() == {stored: 5}


def test_looking_for_null_or_another_plain_value_decodes_nothing() -> None:
    view = opened({Key(number): Value(number) for number in range(1000)}, NUMBERED).views[0]
    assert made(lambda: view.get(None), lambda: view.get("7"), lambda: "x" in view) == {}


# What is fetched and kept


def fetched(operator: ReplicatedOperator, *operations: Any) -> int:
    """The number of objects that are read meanwhile."""
    real, paths = type(operator.objects.store).get_many, []

    def get_many(store: Any, wanted: Any) -> Any:
        paths.extend(wanted)
        return real(store, wanted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(operator.objects.store), "get_many", get_many)
        for operation in operations:
            operation()
    return len(paths)


def test_what_a_host_wrote_or_read_is_not_fetched_again() -> None:
    operator = ReplicatedOperator(TOTALS, parallelism=3)
    for epoch in range(5):
        for index, view in enumerate(operator.views):
            view.insert(f"{index}-{epoch}", epoch)
        operator.checkpoint()
    operator.restore(3)
    assert fetched(operator, lambda: [view.get("0-0") for view in operator.views]) == 0


def test_a_new_host_fetches_each_file_once_for_all_subtasks(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = ReplicatedOperator(TOTALS, parallelism=3)
    for epoch in range(5):
        for index, view in enumerate(operator.views):
            view.insert(f"{index}-{epoch}", epoch)
        operator.checkpoint()
    other = RunCache(tmp_path / "other", 1 << 30)
    monkeypatch.setattr(ReplicatedOperator, "find_cache", staticmethod(lambda: other))
    operator.restore(8)
    assert fetched(operator, lambda: [view.get("0-0") for view in operator.views]) == 15
    operator.views[0].insert("x", 1)
    operator.checkpoint()
    operator.restore(8)
    assert fetched(operator, lambda: [view.get("0-0") for view in operator.views]) == 0


def test_many_overwrites_are_kept_once() -> None:
    view = ReplicatedOperator(TOTALS).views[0]
    for number in range(200_000):
        view.insert(f"key-{number % 5000}", number)
    assert len(view._written.current) + sum(map(len, view._written._parts)) <= 3 * 5000
    assert len(view) == 5000


def test_an_entry_that_cannot_be_stored_may_be_overwritten_among_many() -> None:
    operator = ReplicatedOperator(TOTALS)
    operator.views[0].insert("bad", "text")
    for number in range(3000):
        operator.views[0].insert(f"key-{number}", number)
    operator.views[0].insert("bad", 7)
    operator.checkpoint()
    operator.restore(1)
    assert operator.views[0].get_all() == {f"key-{number}": number for number in range(3000)} | {"bad": 7}


def test_an_entry_that_cannot_be_stored_is_named_among_many() -> None:
    operator = ReplicatedOperator(TOTALS)
    for number in range(3000):
        operator.views[0].insert(f"key-{number}", number)
    operator.views[0].insert("bad", "text")
    with pytest.raises(InvalidInputError, match="'bad'"):
        operator.checkpoint()
