"""Running aggregates in a harness, against the same question asked of all rows at once."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

import lakestate as ls
from lakestate.errors import InvalidInputError, LakestateError
from lakestate.operators.aggregates import RunningAggregate
from lakestate.testing import OperatorHarness

COLUMNS = "n bigint, x double, d decimal(10,2), t string, b boolean"


def row(user: str | None, n: int | None, **values: object) -> dict[str, object]:
    return {"user": user, "n": n, "x": None, "d": None, "t": None, "b": None} | values


def table(rows: list[dict[str, object]]) -> pa.Table:
    schema = pa.schema(
        [
            ("user", pa.string()),
            ("n", pa.int64()),
            ("x", pa.float64()),
            ("d", pa.decimal128(10, 2)),
            ("t", pa.string()),
            ("b", pa.bool_()),
        ]
    )
    return pa.Table.from_pylist(rows, schema=schema)


def all_aggregates() -> dict[str, ls.Aggregate]:
    return {
        "rows": ls.count(),
        "numbers": ls.count("n"),
        "total": ls.sum("n"),
        "exact": ls.sum("d"),
        "avg": ls.mean("n"),
        "avg_d": ls.mean("d"),
        "least": ls.min("t"),
        "most": ls.max("x"),
        "every": ls.bool_and("b"),
        "some": ls.bool_or("b"),
    }


def test_results_are_those_of_all_rows_so_far() -> None:
    harness = OperatorHarness(
        RunningAggregate.over("user string", COLUMNS, **all_aggregates()), parallelism=2
    )
    first = harness.epoch(
        table([row("ann", 1, x=1.5, d=Decimal("0.10"), t="b", b=True), row("ann", None, x=float("nan"))])
    )
    assert first == [
        {"user": "ann", "rows": 2, "numbers": 1, "total": 1, "exact": Decimal("0.10"), "avg": 1.0,
         "avg_d": Decimal("0.100000"), "least": "b", "most": 1.5, "every": True, "some": True}
    ]  # fmt: skip
    harness.rescale(3)
    second = harness.epoch(table([row("ann", 4, d=Decimal("0.20"), t="a", b=False), row(None, None)]))
    assert sorted(second, key=str) == [
        {"user": "ann", "rows": 3, "numbers": 2, "total": 5, "exact": Decimal("0.30"), "avg": 2.5,
         "avg_d": Decimal("0.150000"), "least": "a", "most": 1.5, "every": False, "some": True},
        {"user": None, "rows": 1, "numbers": 0, "total": None, "exact": None, "avg": None,
         "avg_d": None, "least": None, "most": None, "every": None, "some": None},
    ]  # fmt: skip


def test_changes_have_the_results_before_and_after() -> None:
    operator = RunningAggregate.over("user string", "n bigint", emit="changes", top=ls.max("n"))
    harness = OperatorHarness(operator)
    assert harness.epoch([{"user": "ann", "n": 3}]) == [{"user": "ann", "top": 3, "_change": "insert"}]
    assert harness.epoch([{"user": "ann", "n": 2}]) == []
    assert harness.epoch([{"user": "ann", "n": 5}, {"user": "bob", "n": 1}]) == [
        {"user": "ann", "top": 3, "_change": "update_preimage"},
        {"user": "ann", "top": 5, "_change": "update_postimage"},
        {"user": "bob", "top": 1, "_change": "insert"},
    ]


def test_a_crash_counts_nothing_twice() -> None:
    harness = OperatorHarness(RunningAggregate.over("user string", "n bigint", total=ls.sum("n")))
    harness.epoch([{"user": "ann", "n": 3}])
    harness.crash([{"user": "ann", "n": 100}])
    assert harness.epoch([{"user": "ann", "n": 4}]) == [{"user": "ann", "total": 7}]
    assert harness.rows("groups") == [{"user": "ann", "total": 7}]


@pytest.mark.parametrize("rows", [[2**62, 2**62], [-(2**63) + 1, -2]])
def test_a_sum_that_does_not_fit_is_refused(rows: list[int]) -> None:
    operator = RunningAggregate.over("user string", "n bigint", total=ls.sum("n"))
    both, one_each = OperatorHarness(operator), OperatorHarness(operator)
    with pytest.raises(LakestateError, match="a sum does not fit"):
        both.epoch([{"user": "ann", "n": n} for n in rows])
    one_each.epoch([{"user": "ann", "n": rows[0]}])
    with pytest.raises(LakestateError, match="a sum does not fit"):
        one_each.epoch([{"user": "ann", "n": rows[1]}])


def test_an_argument_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"sum\(t\) of total; found string; expected a number"):
        RunningAggregate.over("user string", "t string", total=ls.sum("t"))
    with pytest.raises(InvalidInputError, match="found bigint; expected boolean"):
        RunningAggregate.over("user string", "n bigint", every=ls.bool_and("n"))
