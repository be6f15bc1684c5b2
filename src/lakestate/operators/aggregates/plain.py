"""Aggregates whose accumulators Arrow and Spark SQL can compute: count, sum, min, max, mean and the like."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakestate.operators.aggregates.aggregate import (
    Accumulator,
    Aggregate,
    BoundAggregate,
    Merge,
    refuse_type,
)
from lakestate.operators.aggregates.finite import FiniteValues
from lakestate.tables.arrow.schema import arrow_type

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FLOATS = ("float", "double")
_ORDERED = (*_INTEGERS, *_FLOATS, "string", "binary", "boolean", "date", "timestamp", "timestamp_ntz")
_PRECISION_MAX = 38


@dataclass(frozen=True)
class BoundCount(BoundAggregate):
    """Counts rows, or values that are not null."""

    accumulators = (Accumulator("", "bigint", Merge.SUM),)
    output = "bigint"
    function = "count"
    takes_back = True

    def create(self, arguments: Sequence[pa.Array]) -> list[pa.Array]:
        """1 for each value that is not null."""
        return [pc.cast(arguments[0].is_valid(), pa.int64())]

    def sql(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """COUNT."""
        return (f"count({arguments[0]})",)

    def result(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The count, 0 for a group in which nothing counted."""
        return pc.fill_null(columns[0], 0)

    def negate(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Counts with the other sign."""
        return [pc.negate(columns[0])]


@dataclass(frozen=True)
class BoundSum(BoundAggregate):
    """Adds numbers up.

    Over rows that may be taken back, it counts them too: a sum of 0 is not that of no value.
    """

    output: str
    is_counted: bool = False
    function = "sum"

    @property
    def takes_back(self) -> bool:  # type: ignore[override]
        """If it knows whether a value is left."""
        return self.is_counted

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:  # type: ignore[override]
        """The sum, and the number of values in it."""
        total = Accumulator("", self.output, Merge.SUM)
        return (total, Accumulator("count", "bigint", Merge.SUM)) if self.is_counted else (total,)

    def create(self, arguments: Sequence[pa.Array]) -> list[pa.Array]:
        """The value itself."""
        values = pc.cast(arguments[0], arrow_type(self.output))
        return [values, pc.cast(values.is_valid(), pa.int64())] if self.is_counted else [values]

    def sql(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """SUM, and COUNT if needed."""
        total = f"CAST(sum({arguments[0]}) AS {self.output})"
        return (total, f"count({arguments[0]})") if self.is_counted else (total,)

    def result(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The sum, null if no value counted."""
        if not self.is_counted:
            return columns[0]
        return pc.if_else(_is_positive(columns[1]), columns[0], pa.scalar(None, columns[0].type))

    def negate(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Sum and count with the other sign."""
        return [pc.negate(column) for column in columns]


@dataclass(frozen=True)
class BoundMean(BoundAggregate):
    """The mean: a sum and a count."""

    sum_type: str
    output: str
    function = "mean"
    takes_back = True

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:  # type: ignore[override]
        """The sum and the number of values."""
        return Accumulator("sum", self.sum_type, Merge.SUM), Accumulator("count", "bigint", Merge.SUM)

    @property
    def _parts(self) -> BoundSum:
        return BoundSum(self.sum_type, is_counted=True)

    def create(self, arguments: Sequence[pa.Array]) -> list[pa.Array]:
        """The value itself, once."""
        return self._parts.create(arguments)

    def sql(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """SUM and COUNT."""
        return self._parts.sql(arguments)

    def result(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The quotient, null if no value counted."""
        total, number = columns
        counted = pc.if_else(_is_positive(number), number, pa.scalar(None, pa.int64()))
        type_ = arrow_type(self.output)
        if not pa.types.is_decimal(type_):
            return pc.divide(pc.cast(total, pa.float64()), pc.cast(counted, pa.float64()))
        wide = pc.cast(total, pa.decimal256(total.type.precision, total.type.scale))
        quotient = pc.divide(wide, pc.cast(pc.cast(counted, pa.decimal128(19, 0)), pa.decimal256(19, 0)))
        return pc.cast(pc.round(quotient, type_.scale, "half_towards_infinity"), type_, safe=False)

    def negate(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Sum and count with the other sign."""
        return [pc.negate(column) for column in columns]


@dataclass(frozen=True)
class BoundExtreme(BoundAggregate):
    """The least or greatest value. NaN is ignored."""

    output: str
    merge_by: Merge
    counts_duplicates = False

    @property
    def function(self) -> str:  # type: ignore[override]
        """The least or the greatest."""
        return self.merge_by.value

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:  # type: ignore[override]
        """The value."""
        return (Accumulator("", self.output, self.merge_by),)

    def create(self, arguments: Sequence[pa.Array]) -> list[pa.Array]:
        """The value itself."""
        (values,) = arguments
        if pa.types.is_floating(values.type):
            return [pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)]
        return [values]

    def sql(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """MIN or MAX."""
        (value,) = arguments
        if self.output in _FLOATS:
            value = f"CASE WHEN NOT isnan({value}) THEN {value} END"
        return (f"{self.merge_by.value}({value})",)

    def result(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The value."""
        return columns[0]


class Count(Aggregate):
    """See `count`."""

    def bind(self, types: Sequence[str], where: str, *, retracts: bool = False) -> BoundAggregate:
        """Takes any type."""
        return BoundCount()


class Sum(Aggregate):
    """See `sum`."""

    def bind(self, types: Sequence[str], where: str, *, retracts: bool = False) -> BoundAggregate:
        """Takes numbers."""
        bound = BoundSum(_sum_type(types[0], self, where), is_counted=retracts)
        return FiniteValues(bound, is_any_nan=False) if retracts and is_float(types[0]) else bound


class Mean(Aggregate):
    """See `mean`."""

    def bind(self, types: Sequence[str], where: str, *, retracts: bool = False) -> BoundAggregate:
        """Takes numbers."""
        found = _DECIMAL.fullmatch(types[0])
        if found is None:
            bound = BoundMean(_sum_type(types[0], self, where), "double")
            return FiniteValues(bound, is_any_nan=False) if retracts and is_float(types[0]) else bound
        precision, scale = (_capped(int(digits) + 4) for digits in found.groups())
        return BoundMean(_sum_type(types[0], self, where), f"decimal({precision},{scale})")


@dataclass(frozen=True)
class _ExtremeKind:
    merge: Merge
    booleans_only: bool

    @property
    def function(self) -> str:
        if self.booleans_only:
            return "bool_and" if self.merge is Merge.MIN else "bool_or"
        return self.merge.value


class Extreme(Aggregate):
    """See `min` and `max`, `bool_and` and `bool_or`."""

    def __init__(self, argument: str, kind: _ExtremeKind, where: str | None) -> None:
        super().__init__(argument, where=where)
        self._kind = kind
        self.function = kind.function

    def bind(self, types: Sequence[str], where: str, *, retracts: bool = False) -> BoundAggregate:
        """Takes what can be ordered, or only booleans."""
        if self._kind.booleans_only and types[0] != "boolean":
            raise refuse_type(where, self, types[0], "boolean")
        if not has_order(types[0]):
            raise refuse_type(where, self, types[0], "a type with an order")
        return BoundExtreme(types[0], self._kind.merge)


def count(argument: str = "1", *, where: str | None = None) -> Aggregate:
    """The number of rows, or of rows for which an expression is not null.

    >>> count(where="price > 100")
    count(1, where='price > 100')
    """
    return Count(argument, where=where)


def sum(argument: str, *, where: str | None = None) -> Aggregate:  # noqa: A001
    """The sum: bigint of integers, double of floats, decimal of decimals. Null without values."""
    return Sum(argument, where=where)


def mean(argument: str, *, where: str | None = None) -> Aggregate:
    """The mean, as double or decimal."""
    return Mean(argument, where=where)


def min(argument: str, *, where: str | None = None) -> Aggregate:  # noqa: A001
    """The least value. NaN is ignored."""
    return Extreme(argument, _ExtremeKind(Merge.MIN, booleans_only=False), where)


def max(argument: str, *, where: str | None = None) -> Aggregate:  # noqa: A001
    """The greatest value. NaN is ignored."""
    return Extreme(argument, _ExtremeKind(Merge.MAX, booleans_only=False), where)


def bool_and(argument: str, *, where: str | None = None) -> Aggregate:
    """Whether an expression is true for all rows. Nulls are ignored."""
    return Extreme(argument, _ExtremeKind(Merge.MIN, booleans_only=True), where)


def bool_or(argument: str, *, where: str | None = None) -> Aggregate:
    """Whether an expression is true for any row. Nulls are ignored."""
    return Extreme(argument, _ExtremeKind(Merge.MAX, booleans_only=True), where)


def has_order(type_: str) -> bool:
    """Whether values of a type can be sorted."""
    return type_ in _ORDERED or _DECIMAL.fullmatch(type_) is not None


def is_float(type_: str) -> bool:
    """Whether a type has NaN."""
    return type_ in _FLOATS


def is_number(type_: str) -> bool:
    """Whether values of a type can be added."""
    return type_ in _INTEGERS or type_ in _FLOATS or _DECIMAL.fullmatch(type_) is not None


def _sum_type(type_: str, aggregate: Aggregate, where: str) -> str:
    if type_ in _INTEGERS:
        return "bigint"
    if type_ in _FLOATS:
        return "double"
    if (found := _DECIMAL.fullmatch(type_)) is not None:
        return f"decimal({_capped(int(found[1]) + 10)},{found[2]})"
    raise refuse_type(where, aggregate, type_, "a number")


def _capped(digits: int) -> int:
    return digits if digits < _PRECISION_MAX else _PRECISION_MAX


def _is_positive(counts: pa.Array) -> pa.Array:
    return pc.fill_null(pc.greater(counts, 0), False)
