"""Declared changes of columns do what they say, and contradictions are refused where they are declared."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.jobs.older_files import ADA, BOB, EVE, V1, Row, layout_of, refusal, upgraded

from lakestate.errors import InvalidInputError
from lakestate.tables.arrow.schema import columns_of
from lakestate.tables.migration.migrations import ColumnChanges, check_migrations


def test_all_declared_changes_work_in_one_step() -> None:
    new = layout_of("name string", "tier string, n bigint", 2)
    step = ColumnChanges(
        1, add={"tier": ("string", "free")}, drop=["old"], rename={"user": "name"}, widen={"n": "bigint"}
    )
    assert upgraded(V1, new, [step], [ADA, EVE]) == [
        {"name": "ada", "tier": "free", "n": 1},
        {"name": "eve", "tier": "free", "n": None},
    ]


ADDED: tuple[tuple[str, object], ...] = (
    ("boolean", True),
    ("tinyint", -128),
    ("bigint", 2**63 - 1),
    ("float", 0.1),
    ("double", float("inf")),
    ("decimal(10,2)", Decimal("1.25")),
    ("string", "ü"),
    ("binary", b"\x00"),
    ("date", datetime.date(2020, 1, 2)),
    ("timestamp", datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)),
    ("timestamp_ntz", datetime.datetime(2020, 1, 2)),
    ("array<int>", [1, None]),
    ("map<string,int>", [("a", 1)]),
    ("struct<a:int,b:array<string>>", {"a": 1, "b": ["x"]}),
    ("string", None),
)


@pytest.mark.parametrize(("ddl", "value"), ADDED)
def test_a_column_of_any_type_is_added_with_its_default(ddl: str, value: object) -> None:
    new = layout_of("user string", f"n int, old string, extra {ddl}", 2)
    found = upgraded(V1, new, [ColumnChanges(1, add={"extra": (ddl, value)})], [ADA, BOB], {1})
    expected = pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
    assert [row["extra"] for row in found] == [expected, None]


def test_a_default_may_be_an_arrow_scalar() -> None:
    new = layout_of("user string", "n int, old string, extra bigint", 2)
    step = ColumnChanges(1, add={"extra": ("bigint", pa.scalar(7, pa.int8()))})
    assert upgraded(V1, new, [step], [ADA]) == [ADA | {"extra": 7}]


WIDER = (
    ("tinyint", "smallint", -128),
    ("int", "double", 2**31 - 1),
    ("float", "double", 0.5),
    ("decimal(5,2)", "decimal(9,4)", Decimal("123.45")),
)


@pytest.mark.parametrize(("narrow", "wide", "value"), WIDER)
def test_widening_keeps_the_value(narrow: str, wide: str, value: object) -> None:
    old, new = layout_of("k int", f"v {narrow}"), layout_of("k int", f"v {wide}", 2)
    rows: list[Row] = [{"k": 1, "v": value}, {"k": 2, "v": None}]
    assert upgraded(old, new, [ColumnChanges(1, widen={"v": wide.upper()})], rows) == rows


def test_two_columns_can_swap_their_names() -> None:
    old, new = layout_of("k int", "a int, b int"), layout_of("k int", "a int, b int", 2)
    step = ColumnChanges(1, rename={"a": "b", "b": "a"})
    assert upgraded(old, new, [step], [{"k": 1, "a": 1, "b": 2}]) == [{"k": 1, "a": 2, "b": 1}]


def test_a_column_can_be_replaced_by_one_of_its_name() -> None:
    new = layout_of("user string", "n string, old string", 2)
    step = ColumnChanges(1, drop=["n"], add={"n": ("string", "?")})
    assert upgraded(V1, new, [step], [ADA]) == [{"user": "ada", "n": "?", "old": "x"}]


CONTRADICTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "text for a list of names": {"drop": "old"},
    "dropped and renamed": {"drop": ["a"], "rename": {"a": "b"}},
    "renamed to one name": {"rename": {"a": "c", "b": "c"}},
    "added and renamed to": {"add": {"b": ("int", 1)}, "rename": {"a": "b"}},
    "added and widened": {"add": {"a": ("int", 1)}, "widen": {"a": "bigint"}},
    "dropped twice": {"drop": ["a", "a"]},
    "an internal name": {"add": {"__key": ("int", 1)}},
    "an unknown type": {"widen": {"a": "number"}},
    "another unknown type": {"add": {"a": ("number", 1)}},
    "no type": {"add": {"a": "int"}},
    "a fraction for an integer": {"add": {"a": ("int", 1.5)}},
    "a fraction in a list": {"add": {"a": ("array<int>", [1.5])}},
    "an unknown field": {"add": {"a": ("struct<x:int>", {"y": 1})}},
    "a number too large": {"add": {"a": ("tinyint", 128)}},
    "a float too large": {"add": {"a": ("float", 1e300)}},
    "text for a number": {"add": {"a": ("int", "1")}},
    "text for bytes": {"add": {"a": ("binary", "x")}},
    "true for a number": {"add": {"a": ("int", True)}},
    "a time without a zone": {"add": {"a": ("timestamp", datetime.datetime(2020, 1, 1))}},
    "a time for a date": {"add": {"a": ("date", datetime.datetime(2020, 1, 1, 5))}},
}


@pytest.mark.parametrize("changes", CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_changes_that_cannot_be_meant_are_refused_at_once(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        ColumnChanges(1, **changes)


UNFITTING: dict[str, tuple[dict[str, Any], str]] = {
    "a key added": ({"add": {"user": ("string", "x")}}, "a key column cannot be added: user"),
    "a key widened": ({"widen": {"user": "string"}}, "a key column cannot be widened: user"),
    "a key dropped": ({"drop": ["user"]}, "a key column cannot be dropped: user"),
    "an added column not declared": ({"add": {"x": ("int", 1)}}, "x; found no such column"),
    "a widened column not declared": ({"widen": {"x": "bigint"}}, "x; found no such column"),
    "renamed to a column not declared": ({"rename": {"x": "y"}}, "y; found no such column"),
    "dropped and still declared": ({"drop": ["n"]}, "n; found still a column"),
    "renamed and still declared": ({"rename": {"n": "m"}}, "m; found no such column"),
    "added with another type": ({"add": {"n": ("int", 1)}}, "n; found int; expected bigint"),
    "widened to another type": ({"widen": {"n": "double"}}, "n; found double; expected bigint"),
    "null where none may be": ({"add": {"must": ("int", None)}}, "may not be null is added with null: must"),
}


@pytest.mark.parametrize(("changes", "reason"), UNFITTING.values(), ids=UNFITTING.keys())
def test_changes_that_do_not_lead_to_the_declared_columns_are_refused(
    changes: dict[str, Any], reason: str
) -> None:
    keys = columns_of("user string", what="key")
    values = columns_of("n bigint, must int not null", what="value")
    with pytest.raises(InvalidInputError) as caught:
        check_migrations([ColumnChanges(1, **changes)], 2, keys, values)
    assert reason in str(caught.value)


UNLIKE_THE_FILE: dict[str, tuple[dict[str, Any], str, str]] = {
    "a key dropped": (
        {"drop": ["user"], "rename": {"old": "user"}},
        "n int",
        "a key column cannot be dropped: user",
    ),
    "a key made a value": (
        {"rename": {"user": "old", "old": "user"}},
        "n int, old string",
        "found key old",
    ),
    "dropped and not there": ({"drop": ["x"]}, "n int, old string", "is not in version 1: x"),
    "renamed and not there": ({"rename": {"x": "y"}}, "n int, y int", "is not in version 1: x"),
    "renamed to one that exists": (
        {"rename": {"n": "old"}},
        "old string",
        "a column is renamed to one that exists: old",
    ),
    "widened and not there": ({"widen": {"x": "bigint"}}, "x bigint", "to widen does not exist: x"),
    "added and there": ({"add": {"n": ("int", 1)}}, "n int, old string", "to add already exists: n"),
    "not wider": ({"widen": {"n": "smallint"}}, "n smallint, old string", "n; found int to smallint"),
}


@pytest.mark.parametrize(("changes", "value", "reason"), UNLIKE_THE_FILE.values(), ids=UNLIKE_THE_FILE.keys())
def test_changes_that_do_not_fit_the_file_are_refused(
    changes: dict[str, Any], value: str, reason: str
) -> None:
    new = layout_of("user string", value, 2)
    assert reason in refusal(V1, new, [ColumnChanges(1, **changes)], [ADA])


def test_several_declared_steps_are_checked_together() -> None:
    keys, values = columns_of("id string", what="key"), columns_of("total double", what="value")
    first = ColumnChanges(1, rename={"user": "name", "n": "count"})
    second = ColumnChanges(2, rename={"name": "id", "count": "total"}, widen={"total": "double"})
    check_migrations([first, second], 3, keys, values)
    with pytest.raises(InvalidInputError, match="a key column cannot be widened: name"):
        check_migrations([ColumnChanges(1, widen={"name": "string"}), second], 3, keys, values)


TYPES = {"int": st.integers(-(2**31), 2**31 - 1), "string": st.text(max_size=3), "boolean": st.booleans()}
NAMES = ("a", "b", "c", "d", "e")
NEW_NAMES = ("a", "b", "v", "w", "x", "y", "z")


@st.composite
def changed_columns(draw: st.DrawFn) -> tuple[dict[str, str], dict[str, Any]]:
    """Columns of a table and changes that fit them."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    types = {name: draw(st.sampled_from(sorted(TYPES))) for name in names}
    drop = draw(st.lists(st.sampled_from(names), unique=True, max_size=len(names) - 1))
    free = [name for name in NEW_NAMES if name not in types or name in drop]
    moved = draw(st.lists(st.sampled_from([name for name in names if name not in drop]), unique=True))
    rename = dict(zip(moved, draw(st.permutations(free)), strict=False))
    taken = {rename.get(name, name) for name in names if name not in drop}
    added = draw(st.lists(st.sampled_from(NEW_NAMES), unique=True, max_size=3))
    add = {name: ("string", draw(st.none() | st.text(max_size=3))) for name in added if name not in taken}
    integers = [rename.get(name, name) for name in names if name not in drop and types[name] == "int"]
    widen = {name: draw(st.sampled_from(["bigint", "double"])) for name in integers if draw(st.booleans())}
    return types, {"add": add, "drop": drop, "rename": rename, "widen": widen}


def changed(row: Row, changes: dict[str, Any]) -> Row:
    """The model: one row, one change after another."""
    kept = {name: value for name, value in row.items() if name not in changes["drop"]}
    renamed = {changes["rename"].get(name, name): value for name, value in kept.items()}
    return renamed | {name: default for name, (_, default) in changes["add"].items()}


def changed_types(types: dict[str, str], changes: dict[str, Any]) -> dict[str, str]:
    added = {name: ddl for name, (ddl, _) in changes["add"].items()}
    kept = {
        changes["rename"].get(name, name): ddl for name, ddl in types.items() if name not in changes["drop"]
    }
    widened: dict[str, str] = changes["widen"]
    return kept | added | widened


def declaration(types: dict[str, str]) -> str:
    return ", ".join(f"{name} {ddl}" for name, ddl in types.items())


@given(st.data(), changed_columns(), st.lists(st.booleans(), max_size=6))
def test_declared_changes_agree_with_a_model_of_rows(
    data: st.DataObject, declared: tuple[dict[str, str], dict[str, Any]], removed: Sequence[bool]
) -> None:
    types, changes = declared
    if not any(changes.values()):
        return
    new_types = changed_types(types, changes)
    order = data.draw(st.permutations(sorted(new_types)))
    old = layout_of("k int", declaration(types))
    new = layout_of("k int", declaration({name: new_types[name] for name in order}), 2)
    rows = [
        {"k": number} | {name: data.draw(st.none() | TYPES[ddl]) for name, ddl in types.items()}
        for number in range(len(removed))
    ]
    gone = {number for number, flag in enumerate(removed) if flag}
    nothing = dict.fromkeys(new_types)
    expected = [
        {"k": number} | nothing if number in gone else changed(row, changes)
        for number, row in enumerate(rows)
    ]
    assert upgraded(old, new, [ColumnChanges(1, **changes)], rows, gone) == expected
