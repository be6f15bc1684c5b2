"""Approximate aggregates: close to the exact answer, bounded, and never read from damaged bytes."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakestate as ls
from lakestate.errors import CorruptionError, InvalidInputError, LakestateError, MissingExtraError
from lakestate.operators.aggregates import RunningAggregate, sketches
from lakestate.operators.aggregates.sketches import BoundApproxCountDistinct, BoundApproxQuantiles
from lakestate.testing import OperatorHarness


def test_estimates_over_several_epochs_are_close_and_bounded() -> None:
    operator = RunningAggregate.over(
        "user string",
        "n bigint",
        different=ls.approx_count_distinct("n"),
        quantiles=ls.approx_quantiles("n", [0.0, 0.5, 1.0]),
    )
    harness = OperatorHarness(operator, parallelism=2)
    values = np.random.default_rng(1).permutation(np.arange(60_000) % 20_000)
    for part in np.split(values, 3):
        rows = pa.table({"user": ["ann"] * len(part), "n": part})
        (found,) = harness.epoch(rows)
    assert abs(found["different"] / 20_000 - 1) < 0.05
    least, middle, greatest = found["quantiles"]
    assert (least, greatest) == (0, 19_999)
    assert abs(middle / 10_000 - 1) < 0.05
    (state,) = harness.rows("groups")
    assert len(state["different_sketch"]) < 5_000
    assert len(state["quantiles_sketch"]) < 8_000


def test_a_few_values_are_counted_exactly_whatever_their_type() -> None:
    columns = "x double, t string, y binary, b boolean, d decimal(5,2), ts timestamp, day date"
    names = ["x", "t", "y", "b", "d", "ts", "day"]
    aggregates = {f"of_{name}": ls.approx_count_distinct(name) for name in names}
    harness = OperatorHarness(RunningAggregate.over("user string", columns, **aggregates))
    schema = pa.schema([("user", pa.string()), *(operator_field(name) for name in names)])
    first = pa.table(
        [["ann"], *([value] for value in (1.5, "a", b"\xff", True, Decimal(1), 7, date(2026, 1, 1)))],
        names=schema.names,
    )
    other = pa.table(
        [["ann"], *([value] for value in (2.5, "b", b"\xfe", False, Decimal(2), 8, date(2026, 1, 2)))],
        names=schema.names,
    )
    nothing = pa.table([["ann"], *([None] for _ in names)], names=schema.names)
    for rows in (first, other, first, nothing):
        (found,) = harness.epoch(rows.cast(schema))
    assert found == {"user": "ann"} | {f"of_{name}": 2 for name in names}


def operator_field(name: str) -> tuple[str, pa.DataType]:
    types = {"x": pa.float64(), "t": pa.string(), "y": pa.binary(), "b": pa.bool_()}
    others = {"d": pa.decimal128(5, 2), "ts": pa.timestamp("us", tz="UTC"), "day": pa.date32()}
    return name, (types | others)[name]


@pytest.mark.parametrize("bound", [BoundApproxCountDistinct(12), BoundApproxQuantiles((0.5,), 200)])
@pytest.mark.parametrize("damage", [b"", b"garbage", None], ids=["empty", "garbage", "cut"])
def test_damaged_sketches_are_corruption(bound: Any, damage: bytes | None) -> None:
    good = bound.sketch(pa.array(range(1000)))
    bad = good[: len(good) // 2] if damage is None else damage
    for column in ([bad], [good, bad]):
        states = pa.array(column, pa.binary())
        with pytest.raises(CorruptionError, match=r"a stored .* sketch cannot be read"):
            bound.result(bound.merge([states], np.array([0, len(column)])))


def test_sketches_of_another_size_are_not_mixed() -> None:
    other = BoundApproxCountDistinct(10).sketch(pa.array([1, 2]))
    with pytest.raises(CorruptionError, match="found precision 10; expected precision 12"):
        BoundApproxCountDistinct(12).result([pa.array([other])])


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="found 30; expected a number from 4 to 21"):
        ls.approx_count_distinct("n", precision=30)
    with pytest.raises(InvalidInputError, match=r"found \[1.5\]; expected numbers from 0 to 1"):
        ls.approx_quantiles("n", [1.5])
    with pytest.raises(LakestateError, match="found string; expected a number"):
        RunningAggregate.over("user string", "t string", q=ls.approx_quantiles("t", [0.5]))


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_module(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(sketches, "import_module", no_module)
    with pytest.raises(MissingExtraError, match=r"lakestate\[sketches\]"):
        ls.approx_count_distinct("n")
