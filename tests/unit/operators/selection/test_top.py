"""Top-N in a harness: ranks, ties, changes, and the text of an order."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakestate.errors import InvalidInputError
from lakestate.operators.selection import OrderBy, TopRows, parse_order
from lakestate.testing import OperatorHarness


def top(**options: Any) -> OperatorHarness:
    return OperatorHarness(TopRows.over("k string", "who string, x int", **options))


def bids(*given: tuple[str, int | None]) -> list[dict[str, Any]]:
    return [{"k": "a", "who": who, "x": x} for who, x in given]


def ranks(found: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return [(row["rank"], row["who"]) for row in found]


def test_only_ranks_that_change_are_yielded() -> None:
    harness = top(n=3, by="x desc")
    assert ranks(harness.epoch(bids(("a", 5), ("b", 9), ("c", None)))) == [(1, "b"), (2, "a"), (3, "c")]
    assert ranks(harness.epoch(bids(("d", 6)))) == [(2, "d"), (3, "a")]
    assert harness.epoch(bids(("e", 1), ("b", 9), ("f", None))[:1]) == []
    harness.crash(bids(("z", 100)))
    harness.rescale(3)
    assert ranks(harness.epoch(bids(("g", 5)))) == []
    assert sorted((row["rank"], row["who"]) for row in harness.rows("best")) == [(1, "b"), (2, "d"), (3, "a")]


def test_a_row_that_is_the_same_as_a_stored_one_is_a_row_of_its_own() -> None:
    harness = top(n=2, by="x")
    assert ranks(harness.epoch(bids(("a", 1)))) == [(1, "a")]
    assert ranks(harness.epoch(bids(("a", 1)))) == [(2, "a")]
    assert ranks(harness.epoch(bids(("a", 1)))) == []


def test_tied_rows_have_one_rank_and_leave_together() -> None:
    harness = top(n=1, by="x desc", ties="all", emit="changes")
    assert harness.epoch(bids(("b", 5), ("a", 5), ("c", 4))) == [
        {"k": "a", "who": "a", "x": 5, "rank": 1, "place": 1, "_change": "insert"},
        {"k": "a", "who": "b", "x": 5, "rank": 1, "place": 2, "_change": "insert"},
    ]
    assert harness.epoch(bids(("d", 6))) == [
        {"k": "a", "who": "b", "x": 5, "rank": 1, "place": 2, "_change": "delete"},
        {"k": "a", "who": "a", "x": 5, "rank": 1, "place": 1, "_change": "update_preimage"},
        {"k": "a", "who": "d", "x": 6, "rank": 1, "place": 1, "_change": "update_postimage"},
    ]
    assert [row["who"] for row in harness.rows("best")] == ["d"]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("decimal(10,2)", [Decimal("-1.50"), Decimal("0.00"), Decimal("2.25")]),
        ("date", [date(1960, 1, 1), date(1970, 1, 1), date(2026, 1, 1)]),
        ("boolean", [False, True, True]),
        ("float", [-float("inf"), 0.5, float("inf")]),
        ("bigint", [-(2**63), 0, 2**63 - 1]),
        ("binary", [b"", b"\x00", b"\xff"]),
        ("string", ["", "a", "ä"]),
        ("timestamp_ntz", [1, 2, 3]),
    ],
)
def test_values_of_all_types_have_an_order(type_: str, values: list[Any]) -> None:
    for by, expected in (("x", values), ("x desc", values[::-1]), ("x nulls first", [None, *values[:2]])):
        harness = OperatorHarness(TopRows.over("k string", f"x {type_}", n=3, by=by))
        operator_type = TopRows.over("k string", f"x {type_}", n=3, by=by).input.field("x").type
        column = pa.array([values[1], values[2], None, values[0]], operator_type)
        found = harness.epoch_table(pa.table({"k": ["a"] * 4, "x": column}))
        assert found["x"].to_pylist() == pa.array(expected, operator_type).to_pylist()


def test_an_order_is_read_as_in_sql() -> None:
    assert parse_order("price desc, ts", "top") == (OrderBy("price", descending=True), OrderBy("ts"))
    assert parse_order("a ASC NULLS FIRST,b\n Desc nulls last", "top") == (
        OrderBy("a", nulls_first=True),
        OrderBy("b", descending=True),
    )
    assert parse_order("if(a, 'x,y', `c,d`) desc, m[1, 2]", "top") == (
        OrderBy("if(a, 'x,y', `c,d`)", descending=True),
        OrderBy("m[1, 2]"),
    )


def test_what_cannot_be_ordered_is_refused() -> None:
    for by, columns, message in [
        ("y", "x int", "y of top; found no such column; .* name one of k, x"),
        ("x", "x array<int>", "found list<element: int32>"),
        ("x", "x int, rank int", "with the name of one that is added: rank"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            TopRows.over("k string", columns, n=1, by=by)
