"""Aggregates that users define: created, merged in any order, and checked."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakestate as ls
from lakestate.errors import InvalidInputError, LakestateError
from lakestate.operators.aggregates import RunningAggregate
from lakestate.testing import OperatorHarness


class Span(ls.Aggregate):
    """The difference between the greatest and the least value; nulls count as 0."""

    state = "low bigint, high bigint"
    output = "bigint"

    def create(self, values: pa.Array) -> pa.Table:
        filled = values.fill_null(0)
        return pa.table({"low": filled, "high": filled})

    def merge(self, states: pa.Table, groups: pa.Array) -> pa.Table:
        grouped = states.append_column("group", groups).group_by("group", use_threads=False)
        found = grouped.aggregate([("low", "min"), ("high", "max")])
        return found.rename_columns(["group", "low", "high"])

    def result(self, states: pa.Table) -> pa.ChunkedArray:
        return pc.subtract(states["high"], states["low"])


class Total(ls.Aggregate):
    """A sum that can be taken back."""

    state = "total bigint"
    output = "bigint"

    def create(self, values: pa.Array) -> pa.Table:
        return pa.table({"total": values.fill_null(0)})

    def merge(self, states: pa.Table, groups: pa.Array) -> pa.Table:
        grouped = states.append_column("group", groups).group_by("group", use_threads=False)
        return grouped.aggregate([("total", "sum")]).rename_columns(["group", "total"])

    def result(self, states: pa.Table) -> pa.ChunkedArray:
        return states["total"]

    def negate(self, states: pa.Table) -> pa.Table:
        return pa.table({"total": pc.negate(states["total"])})


def test_states_are_merged_over_epochs_with_nulls_and_rescaling() -> None:
    harness = OperatorHarness(RunningAggregate.over("user string", "n bigint", span=Span("n")))
    assert harness.epoch([{"user": "ann", "n": 5}, {"user": "ann", "n": 9}]) == [{"user": "ann", "span": 4}]
    harness.rescale(3)
    found = harness.epoch([{"user": "bob", "n": 2}, {"user": "ann", "n": None}, {"user": "bob", "n": 1}])
    assert sorted(found, key=str) == [{"user": "ann", "span": 9}, {"user": "bob", "span": 1}]
    assert sorted(harness.rows("groups"), key=str) == [
        {"user": "ann", "span_low": 0, "span_high": 9},
        {"user": "bob", "span_low": 1, "span_high": 2},
    ]


def test_without_negate_values_are_kept_and_with_it_they_are_not() -> None:
    operator = RunningAggregate.over(
        "user string", "n bigint, _sign int", retracts=True, span=Span("n"), total=Total("n")
    )
    assert sorted(operator.tables()) == ["groups", "values_n"]
    harness = OperatorHarness(operator)
    harness.epoch([{"user": "ann", "n": n, "_sign": 1} for n in (3, 5, 5, None)])
    assert harness.epoch([{"user": "ann", "n": n, "_sign": -1} for n in (5, None)]) == [
        {"user": "ann", "span": 5, "total": 13, "_change": "update_preimage"},
        {"user": "ann", "span": 2, "total": 8, "_change": "update_postimage"},
    ]


@pytest.mark.parametrize(
    ("method", "returned", "message"),
    [
        ("create", pa.table({"low": [1]}), "Span.create; found columns low; expected columns low, high"),
        (
            "create",
            pa.table({"low": [1, 2], "high": [1, 2]}),
            "found Table of 2; expected an Arrow table of 1",
        ),
        ("create", pa.table({"low": ["x"], "high": [1]}), "expected low bigint, high bigint"),
        ("create", {"low": [1]}, "found dict; expected an Arrow table of 1 rows"),
        ("create", pa.table({"low": [None], "high": [None]}), "a state of which all columns are null"),
        ("result", pa.array([1, 2]), "found Int64Array of 2; expected an Arrow array of 1 values"),
        ("result", pa.array(["x"]), "Span.result"),
    ],
)
def test_what_is_not_as_declared_is_refused(method: str, returned: Any, message: str) -> None:
    broken = type("Span", (Span,), {method: lambda *_: returned})
    harness = OperatorHarness(RunningAggregate.over("user string", "n bigint", span=broken("n")))
    with pytest.raises(LakestateError, match=message.replace("Span.", r"Span\.")):
        harness.epoch([{"user": "ann", "n": 5}])


def test_an_aggregate_without_a_declaration_is_refused() -> None:
    class Nothing(ls.Aggregate):
        output = "bigint"

    with pytest.raises(InvalidInputError, match=r"does not declare `state`: Nothing of total"):
        RunningAggregate.over("user string", "n bigint", total=Nothing("n"))
