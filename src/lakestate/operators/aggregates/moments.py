"""Variance and standard deviation: number, mean, and the sum of squared differences from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
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
from lakestate.operators.aggregates.groups import sum_by_group
from lakestate.operators.aggregates.plain import is_float, is_number
from lakestate.tables.arrow.grouping import group_numbers


@dataclass(frozen=True)
class BoundVariance(BoundAggregate):
    """The variance of a sample, or its root.

    Merging adds what the differences between the means contribute, so that no squares of large values are
    subtracted from each other.
    """

    is_root: bool
    accumulators = (
        Accumulator("count", "bigint", Merge.OWN),
        Accumulator("mean", "double", Merge.OWN),
        Accumulator("m2", "double", Merge.OWN),
    )
    output = "double"
    function = "variance"
    takes_back = True

    def create(self, arguments: Sequence[pa.Array]) -> list[pa.Array]:
        """One value, at no distance from its mean."""
        values = pc.cast(arguments[0], pa.float64())
        zero = pc.if_else(values.is_valid(), 0.0, pa.scalar(None, pa.float64()))
        return [pc.cast(values.is_valid(), pa.int64()), values, zero]

    def sql(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """COUNT, AVG and VAR_POP."""
        value = f"CAST({arguments[0]} AS DOUBLE)"
        return f"count({value})", f"avg({value})", f"var_pop({value}) * count({value})"

    def merge(self, columns: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        """Numbers are added, means are weighted. What is taken back has a negative number."""
        count, mean, m2 = (pc.fill_null(column, 0).to_numpy(zero_copy_only=False) for column in columns)
        counts = sum_by_group(count, offsets)
        with np.errstate(invalid="ignore", divide="ignore"):
            weighted = np.where(count == 0, 0.0, count * mean)
            means = sum_by_group(weighted, offsets) / counts
            distance = mean - means[group_numbers(offsets)]
            parts = np.where(count == 0, 0.0, m2 + count * distance * distance)
            m2s = sum_by_group(parts, offsets)
        nothing = counts == 0
        # What is left after taking back may be below zero by a rounding error.
        m2s = np.where(m2s < 0, 0.0, m2s)
        return [pa.array(counts), pa.array(means, mask=nothing), pa.array(m2s, mask=nothing)]

    def result(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Null for fewer than two values."""
        count, _, m2 = columns
        enough = pc.fill_null(pc.greater(count, 1), False)
        freedom = pc.cast(pc.subtract(pc.if_else(enough, count, 2), 1), pa.float64())
        variance = pc.if_else(enough, pc.divide(m2, freedom), pa.scalar(None, pa.float64()))
        return pc.sqrt(variance) if self.is_root else variance

    def negate(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """A negative number of values with the same mean."""
        return [pc.negate(columns[0]), columns[1], pc.negate(columns[2])]


class Variance(Aggregate):
    """See `variance` and `stddev`."""

    def __init__(self, argument: str, where: str | None, *, is_root: bool) -> None:
        super().__init__(argument, where=where)
        self._is_root = is_root
        self.function = "stddev" if is_root else "variance"

    def bind(self, types: Sequence[str], where: str, *, retracts: bool = False) -> BoundAggregate:
        """Takes numbers."""
        if not is_number(types[0]):
            raise refuse_type(where, self, types[0], "a number")
        bound = BoundVariance(self._is_root)
        return FiniteValues(bound, is_any_nan=True) if retracts and is_float(types[0]) else bound


def variance(argument: str, *, where: str | None = None) -> Aggregate:
    """The variance of a sample, as double. Null for fewer than two values."""
    return Variance(argument, where, is_root=False)


def stddev(argument: str, *, where: str | None = None) -> Aggregate:
    """The standard deviation of a sample, as double. Null for fewer than two values."""
    return Variance(argument, where, is_root=True)
