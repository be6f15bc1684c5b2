"""The value that goes with the least or greatest of something: min_by and max_by, first and last."""

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
from lakestate.operators.aggregates.groups import best_rows
from lakestate.operators.aggregates.plain import has_order, is_float
from lakestate.tables.arrow.grouping import group_numbers


@dataclass(frozen=True)
class BoundBy(BoundAggregate):
    """A value, and what it was chosen by."""

    output: str
    by: str
    suffix: str
    greatest: bool
    counts_duplicates = False

    @property
    def function(self) -> str:  # type: ignore[override]
        """By which end of what."""
        return f"{'max' if self.greatest else 'min'}_{self.suffix}"

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:  # type: ignore[override]
        """The value, and what it was chosen by: null if no row counted."""
        return Accumulator("", self.output, Merge.OWN), Accumulator(self.suffix, self.by, Merge.OWN)

    def create(self, arguments: Sequence[pa.Array]) -> list[pa.Array]:
        """The row's own."""
        value, by = arguments
        counts = by.is_valid()
        if pa.types.is_floating(by.type):
            counts = pc.fill_null(pc.invert(pc.is_nan(by)), False)
        return [
            pc.if_else(counts, value, pa.scalar(None, value.type)),
            pc.if_else(counts, by, pa.scalar(None, by.type)),
        ]

    def sql(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """MAX or MIN of a struct, whose first fields decide."""
        value, by = arguments
        is_nan = f"isnan({value})" if is_float(self.output) else "false"
        if self.greatest:
            rank = f"'a', {value} IS NOT NULL, 'b', NOT {is_nan}"
        else:
            rank = f"'a', {value} IS NULL, 'b', {is_nan}"
        counts = f"{by} IS NOT NULL" + (f" AND NOT isnan({by})" if is_float(self.by) else "")
        row = f"CASE WHEN {counts} THEN named_struct('by', {by}, {rank}, 'value', {value}) END"
        best = f"{'max' if self.greatest else 'min'}({row})"
        return f"{best}.value", f"{best}.by"

    def merge(self, columns: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        """The row that comes first or last."""
        value, by = columns
        groups, rows = best_rows(by, value, group_numbers(offsets), greatest=self.greatest)
        places = np.full(len(offsets) - 1, -1)
        places[groups] = rows
        indices = pa.array(places, mask=places < 0)
        return [value.take(indices), by.take(indices)]

    def result(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The value."""
        return columns[0]


class By(Aggregate):
    """See `min_by` and `max_by`."""

    suffix = "by"
    names = ("min_by", "max_by")

    def __init__(self, *arguments: str, where: str | None, greatest: bool) -> None:
        super().__init__(*arguments, where=where)
        self._greatest = greatest
        self.function = self.names[int(greatest)]

    def bind(self, types: Sequence[str], where: str, *, retracts: bool = False) -> BoundAggregate:
        """Takes a value and what to choose by, both of types with an order."""
        for each in types:
            if not has_order(each):
                raise refuse_type(where, self, each, "a type with an order")
        return BoundBy(types[0], types[1], self.suffix, self._greatest)


class ByTime(By):
    """See `first` and `last`."""

    suffix = "time"
    names = ("first", "last")
    needs_time = True


def min_by(value: str, by: str, *, where: str | None = None) -> Aggregate:
    """The value of the row with the least `by`; of several such rows, the least value.

    Rows in which `by` is null or NaN do not count.

    >>> min_by("bidder", "price")
    min_by(bidder, price)
    """
    return By(value, by, where=where, greatest=False)


def max_by(value: str, by: str, *, where: str | None = None) -> Aggregate:
    """The value of the row with the greatest `by`; of several such rows, the greatest value.

    Rows in which `by` is null or NaN do not count.
    """
    return By(value, by, where=where, greatest=True)


def first(value: str, *, where: str | None = None) -> Aggregate:
    """The value of the row with the earliest event time; of several such rows, the least value.

    Rows without event time do not count.

    >>> first("page")
    first(page)
    """
    return ByTime(value, where=where, greatest=False)


def last(value: str, *, where: str | None = None) -> Aggregate:
    """The value of the row with the latest event time; of several such rows, the greatest value.

    Rows without event time do not count.
    """
    return ByTime(value, where=where, greatest=True)
