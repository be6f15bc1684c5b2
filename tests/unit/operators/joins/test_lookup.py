"""Lookups in a harness, against the same question asked row by row."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from lakestate.operators.joins import Lookup
from lakestate.protocol.watermarks import instant
from lakestate.testing import OperatorHarness

LEFT = pa.schema([("id", pa.int64()), ("price", pa.int64())])
RIGHT = pa.schema([("id", pa.int64()), ("item", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])


def harness_of(**options: Any) -> OperatorHarness:
    right = "item string, at timestamp" if "time" in options else "item string"
    return OperatorHarness(Lookup.over("id bigint", left="price bigint", right=right, **options))


def bid(number: int | None, price: int = 1) -> dict[str, Any]:
    return {"id": number, "price": price}


def auction(number: int | None, item: str | None, at: int | None = 0) -> dict[str, Any]:
    return {"id": number, "item": item, "at": None if at is None else instant(at)}


def items(rows: list[dict[str, Any]]) -> list[Any]:
    return [row["item"] for row in rows]


def test_right_rows_of_the_same_epoch_count_first() -> None:
    harness = harness_of()
    assert harness.epoch(left=[bid(1)], right=[{"id": 1, "item": "cup"}]) == [{**bid(1), "item": "cup"}]
    assert items(harness.epoch(left=[bid(1)], right=[{"id": 1, "item": "ant"}])) == ["ant"]


def test_the_newest_is_the_latest_by_event_time_and_then_the_greatest() -> None:
    harness = harness_of(time="at")
    harness.epoch(right=[auction(1, "new", 9), auction(1, "old", 5)])
    assert items(harness.epoch(left=[bid(1)], right=[auction(1, "late", 7)])) == ["new"]
    assert items(harness.epoch(left=[bid(1)], right=[auction(1, "ant", 9), auction(1, None, 9)])) == ["new"]
    assert items(harness.epoch(left=[bid(1)], right=[auction(1, "zoo", 9), auction(1, "x", 9)])) == ["zoo"]
    assert items(harness.epoch(left=[bid(2)], right=[auction(2, "timeless", None)])) == ["timeless"]
    assert items(harness.epoch(left=[bid(2)], right=[auction(2, "timed", 0)])) == ["timed"]


def test_a_null_in_the_key_matches_nothing() -> None:
    harness = harness_of()
    assert items(harness.epoch(left=[bid(None)], right=[{"id": None, "item": "cup"}])) == [None]
    assert harness.rows("newest") == []
    assert harness_of(how="inner").epoch(left=[bid(None)], right=[{"id": None, "item": "cup"}]) == []


def test_an_inner_lookup_leaves_out_rows_without_a_match() -> None:
    harness = harness_of(how="inner")
    found = harness.epoch(left=[bid(1), bid(2)], right=[{"id": 1, "item": None}])
    assert found == [{**bid(1), "item": None}]


def test_rows_are_forgotten_after_their_time_to_live() -> None:
    harness = harness_of(time="at", keep=timedelta(microseconds=10))
    harness.epoch(right=[auction(1, "cup", 100)], watermark=100)
    assert items(harness.epoch(left=[bid(1)], watermark=110)) == ["cup"]
    harness.epoch(watermark=111)
    assert items(harness.epoch(left=[bid(1)])) == [None]


def test_nested_columns_are_compared_too() -> None:
    operator = Lookup.over("id bigint", left="price bigint", right="tags array<string>")
    found = [
        OperatorHarness(operator).epoch(left=[bid(1)], right=[{"id": 1, "tags": tags} for tags in order])
        for order in ([["a"], ["b"]], [["b"], ["a"]])
    ]
    assert found == [[{**bid(1), "tags": ["b"]}]] * 2


@pytest.mark.parametrize("seed", range(8))
def test_random_epochs_find_what_a_loop_over_all_rows_finds(seed: int) -> None:
    choose = random.Random(seed)
    harness = harness_of(time="at", how=choose.choice(["left", "inner"]))
    is_inner = harness._operator._how.value == "inner"  # type: ignore[attr-defined]
    newest: dict[int, tuple[int, bool, str]] = {}
    for number in range(10):
        keys = [None, *range(8)]
        left = [bid(choose.choice(keys), price) for price in range(choose.choice([0, 1, 20]))]
        right = [
            auction(
                choose.choice(keys), choose.choice([None, "a", "b", "c"]), number + choose.randrange(-3, 3)
            )
            for _ in range(choose.choice([0, 1, 20]))
        ]
        tables = {
            "left": pa.Table.from_pylist(left, schema=LEFT),
            "right": pa.Table.from_pylist(right, schema=RIGHT),
        }
        if choose.random() < 0.2:
            harness.crash(**tables)
        harness.rescale(choose.randrange(1, 4))
        for row in right:
            if row["id"] is not None:
                candidate = (row["at"], row["item"] is not None, row["item"] or "")
                newest[row["id"]] = max(candidate, newest.get(row["id"], candidate))
        expected = [
            {**row, "item": newest[row["id"]][2] or None, "at": newest[row["id"]][0]}
            if row["id"] in newest
            else {**row, "item": None, "at": None}
            for row in left
            if row["id"] in newest or not is_inner
        ]
        assert sorted(harness.epoch(**tables), key=str) == sorted(expected, key=str)
