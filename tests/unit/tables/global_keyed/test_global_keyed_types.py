from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Optional
from uuid import UUID

import msgspec
import numpy as np
import pytest
from tests.support.jobs.replicated_operator import ReplicatedOperator

from lakestate.errors import InvalidInputError
from lakestate.tables.global_keyed.table import GlobalKeyedTable


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Account:
    id: int
    name: str


@dataclass(frozen=True)
class Renamed:
    id: int
    name: str


@dataclass
class Mutable:
    id: int


@dataclass(frozen=True)
class PartlyCompared:
    id: int
    note: str = field(default="", compare=False)


@dataclass(frozen=True)
class Price:
    amount: Decimal
    weight: float


class Point(NamedTuple):
    x: int
    y: float


class Event(msgspec.Struct, frozen=True):
    at: datetime
    tags: tuple[str, ...] = ()


class Open(msgspec.Struct):
    items: list[int]


class Tagged(msgspec.Struct, frozen=True, tag="t", array_like=True):
    n: int


class Tree(msgspec.Struct, frozen=True):
    value: int
    left: Optional[Tree] = None  # noqa: UP045 - msgspec evaluates it


class Group(msgspec.Struct, frozen=True, order=True):
    name: str
    inside: frozenset[Group] = frozenset()


class Unknown:
    pass


@dataclass(frozen=True)
class CaseBlind:
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CaseBlind) and self.name.lower() == other.name.lower()

    def __hash__(self) -> int:
        return hash(self.name.lower())


class BlindStruct(msgspec.Struct, frozen=True):
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlindStruct)

    def __hash__(self) -> int:
        return 1


class BlindPoint(NamedTuple):
    x: int

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


class BlindColour(enum.Enum):
    RED = "r"

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


def stored_and_restored(table: GlobalKeyedTable, entries: dict[Any, Any]) -> dict[Any, Any]:
    operator = ReplicatedOperator(table)
    for key, value in entries.items():
        operator.views[0].insert(key, value)
    operator.checkpoint()
    operator.restore(1)
    return operator.views[0].get_all()


NOW = datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=UTC)
KEYS = [
    (str, ["", "a", "ünï", "x" * 300, "日本"]),
    (int, [0, -1, 2**63, -(2**63), 2**64 - 1]),
    (bool, [True, False]),
    (bytes, [b"", b"\x00", b"\xff" * 70_000]),
    (float, [0.0, 1.5, -math.inf, 5e-324]),
    (None, [None]),
    (int | None, [None, 0, 5]),
    (str | int, ["1", 1]),
    (tuple[str, int], [("a", 1), ("a", 2)]),
    (tuple[int, ...], [(), (1,), (1, 2)]),
    (frozenset[str], [frozenset(), frozenset("abcdefgh"), frozenset("b")]),
    (datetime, [NOW, datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    (date, [date(2024, 2, 29)]),
    (timedelta, [timedelta(0), timedelta(days=-3, microseconds=7)]),
    (Decimal, [Decimal("1.10"), Decimal("-1e50"), Decimal(0)]),
    (UUID, [UUID(int=0), UUID(int=2**128 - 1)]),
    (Colour, [Colour.RED, Colour.BLUE]),
    (Level, [Level.LOW]),
    (Literal["a", 1], ["a", 1]),
    (Account, [Account(1, "a"), Account(1, "b")]),
    (Price, [Price(Decimal("1.50"), 0.25)]),
    (Point, [Point(1, 2.5)]),
    (Event, [Event(NOW), Event(NOW, ("a", "b"))]),
    (Tagged, [Tagged(5)]),
    (Tree, [Tree(1, Tree(2))]),
]
VALUES = [
    *KEYS,
    (list[int], [[], [1, 2]]),
    (dict[str, list[float]], [{}, {"b": [1.0], "a": []}]),
    (dict[tuple[int, int], str], [{(1, 2): "x"}]),
    (set[int], [set(), {1, 2}]),
    (time, [time(12, 30, tzinfo=UTC), time(0)]),
    (bytearray, [bytearray(b"abc")]),
    (Mutable, [Mutable(3)]),
    (Open, [Open([1, 2])]),
]


def shown(case: object) -> str:
    """The types alone: what is in a set is shown in another order by every process."""
    return "examples" if isinstance(case, list) else str(case)


@pytest.mark.parametrize(("key", "examples"), KEYS, ids=shown)
def test_keys_come_back_as_they_were(key: Any, examples: list[Any]) -> None:
    entries = {example: number for number, example in enumerate(examples)}
    found = stored_and_restored(GlobalKeyedTable("t", key=key, value=int), entries)
    assert found == entries
    assert {type(key) for key in found} == {type(key) for key in entries}


@pytest.mark.parametrize(("value", "examples"), VALUES, ids=shown)
def test_values_come_back_as_they_were(value: Any, examples: list[Any]) -> None:
    entries = dict(enumerate(examples))
    found = stored_and_restored(GlobalKeyedTable("t", key=int, value=value), entries)
    assert found == entries
    assert {key: type(found[key]) for key in found} == {key: type(entries[key]) for key in entries}


def test_not_a_number_and_minus_zero_are_values() -> None:
    found = stored_and_restored(GlobalKeyedTable("t", key=int, value=float), {1: math.nan, 2: -0.0})
    assert math.isnan(found[1])
    assert math.copysign(1, found[2]) == -1.0


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        (float, 0.0, -0.0),
        (float, 1.0, 1),
        (Decimal, Decimal("1.5"), Decimal("1.500")),
        (Decimal, Decimal("0"), Decimal("-0.00")),
        (Decimal, Decimal("1e40"), Decimal(10**40)),
        (tuple[float, ...], (0.0, 1.0), (-0.0, 1)),
        (frozenset[float], frozenset([0.0]), frozenset([-0.0])),
        (Price, Price(Decimal(1), 0.0), Price(Decimal("1.0"), -0.0)),
        (Point, Point(1, 0.0), Point(1, -0.0)),
        (datetime, NOW, NOW.astimezone(timezone(timedelta(hours=5)))),
        (frozenset[str], frozenset(["a", "ü", "zz", "b"]), frozenset(["zz", "b", "ü", "a"])),
    ],
)
def test_equal_keys_are_one_key_even_when_files_are_merged_without_types(
    key: Any, one: Any, other: Any
) -> None:
    table = GlobalKeyedTable("t", key=key, value=int)
    operator = ReplicatedOperator(table)
    for value, form in enumerate([one, other]):
        operator.restore(1)
        operator.views[0].insert(form, value)
        operator.checkpoint()
    merge = operator.compact(table=GlobalKeyedTable.from_config(table.config))
    assert merge is not None
    assert [file.row_count for file in merge.merged] == [1]
    operator.restore(1)
    assert operator.views[0].get_all() == {one: 1}


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        (str, "str"),
        (None, "None"),
        (tuple[str, int], "tuple[str, int]"),
        (tuple[()], "tuple"),
        (dict[str, list[float]], "dict[str, list[float]]"),
        (None | str | int, "int | str | None"),
        (Optional[int], "int | None"),  # noqa: UP045
        (frozenset[bytes], "frozenset[bytes]"),
        (Colour, "Colour"),
        (Literal["b", "a"], "Literal['a', 'b']"),
        (Account, "Account(id: int, name: str)"),
        (Point, "Point(x: int, y: float)"),
        (Event, "Event(at: datetime, tags: tuple[str, ...])"),
        (Tagged, "Tagged[type: 't', n: int]"),
        (Tree, "Tree(value: int, left: Tree | None)"),
    ],
)
def test_types_are_written_down_readably(declared: Any, text: str) -> None:
    table = GlobalKeyedTable("t", key=str, value=declared)
    assert [column.type for column in table.config.value_columns] == [text]


@pytest.mark.parametrize(
    "key",
    [list[int], dict[str, int], set[int], bytearray, Mutable, Open, tuple[int, list[int]], Tree | list[int]],
)
def test_a_key_type_that_is_not_hashable_is_refused_with_the_tables_name(key: Any) -> None:
    with pytest.raises(InvalidInputError, match="table accounts"):
        GlobalKeyedTable("accounts", key=key, value=int)


@pytest.mark.parametrize(
    "key",
    [
        int | float,
        int | bool,
        Level | float,
        time,
        PartlyCompared,
        CaseBlind,
        BlindStruct,
        tuple[BlindPoint, int],
        BlindColour,
    ],
)
def test_a_key_type_with_equal_keys_that_are_stored_differently_is_refused(key: Any) -> None:
    with pytest.raises(InvalidInputError, match="table accounts"):
        GlobalKeyedTable("accounts", key=key, value=int)


@pytest.mark.parametrize(
    "key",
    [
        frozenset[frozenset[str]],
        frozenset[tuple[int, frozenset[str] | None]],
        tuple[str, frozenset[tuple[frozenset[int], ...]]],
        Group,
    ],
)
def test_a_key_type_with_sets_in_a_set_is_refused_because_nothing_orders_them(key: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"table accounts.*sets have no order among each other"):
        GlobalKeyedTable("accounts", key=key, value=int)
    GlobalKeyedTable("accounts", key=str, value=key)
    GlobalKeyedTable("accounts", key=tuple[frozenset[str], frozenset[int]], value=int)


@pytest.mark.parametrize("value", [Any, object, list, dict, Unknown, list[Unknown], memoryview, "str", 5])
def test_a_type_that_could_not_be_read_back_is_refused_with_the_tables_name(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="table accounts"):
        GlobalKeyedTable("accounts", key=str, value=value)


@pytest.mark.parametrize(
    ("key", "value", "entry"),
    [
        (str, int, ("b", "text")),
        (str, int, ("b", True)),
        (str, int, ("b", 2**64)),
        (str, str, ("b", NOW)),
        (str, str, ("b", "\ud800")),
        (str, list[int], ("b", ["x"])),
        (str, Account, ("b", Account("no number", "x"))),  # type: ignore[arg-type]
        (str, Account, ("b", Unknown())),
        (str, int, (7, 1)),
        (str, int, (UUID(int=1), 1)),
        (int, int, (True, 1)),
        (int, int, (1.0, 1)),
        (float, int, (math.nan, 1)),
        (tuple[str, int], int, (("a",), 1)),
        (tuple[str, float], int, (("a", math.nan), 1)),
        (Account, int, (Renamed(1, "a"), 1)),
        (frozenset[int | str], int, (frozenset([1, "a"]), 1)),
        (frozenset[Account], int, (frozenset([Account(1, "a"), Account(2, "b")]), 1)),
        (frozenset[Decimal], int, (frozenset([Decimal(1), Decimal("nan")]), 1)),
    ],
    ids=lambda case: "entry" if isinstance(case, tuple) else str(case),
)
def test_a_wrong_type_is_found_at_the_checkpoint_and_nothing_is_stored(
    key: Any, value: Any, entry: tuple[Any, Any]
) -> None:
    operator = ReplicatedOperator(GlobalKeyedTable("accounts", key=key, value=value))
    operator.views[0].insert(*entry)
    with pytest.raises(InvalidInputError, match="table accounts") as caught:
        operator.checkpoint()
    assert repr(entry[0]) in str(caught.value)
    assert list(operator.objects.store.list("")) == []


@pytest.mark.parametrize(
    ("key", "stored", "given"),
    [
        (int, 1, np.int64(1)),
        (int, 1, True),
        (int, 1, 1.0),
        (bytes, b"a", memoryview(b"a")),
        (tuple[str, int], ("a", 1), ("a", 1.0)),
    ],
)
def test_removing_a_key_that_only_equals_the_stored_one_is_refused_and_removes_nothing(
    key: Any, stored: Any, given: Any
) -> None:
    operator = ReplicatedOperator(GlobalKeyedTable("accounts", key=key, value=int))
    operator.views[0].insert(stored, 5)
    operator.checkpoint()
    operator.restore(1)
    with pytest.raises(InvalidInputError, match="table accounts cannot remove a key") as caught:
        operator.views[0].remove(given)
    assert repr(given) in str(caught.value)
    assert operator.views[0].get_all() == {stored: 5}
    assert operator.views[0].remove(stored) == 5
    operator.checkpoint()
    operator.restore(1)
    assert operator.views[0].get_all() == {}


def test_after_a_refused_checkpoint_the_entry_can_be_removed_and_the_rest_stored() -> None:
    operator = ReplicatedOperator(GlobalKeyedTable("accounts", key=str, value=int))
    operator.views[0].insert("good", 1)
    operator.views[0].insert("bad", "text")
    with pytest.raises(InvalidInputError, match="'bad'"):
        operator.checkpoint()
    operator.views[0].remove("bad")
    operator.checkpoint()
    operator.restore(1)
    assert operator.views[0].get_all() == {"good": 1}
