"""Aggregates that keep values: collect_list and collect_set, bounded, and the exact count_distinct."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError
from lakestate.operators.aggregates.aggregate import (
    Accumulator,
    Aggregate,
    BoundAggregate,
    Merge,
    refuse_type,
)
from lakestate.operators.aggregates.groups import (
    distinct_rows,
    fill_empty,
    flatten_lists,
    lists_of_groups,
    normalise_floats,
)
from lakestate.operators.aggregates.plain import has_order
from lakestate.tables.arrow.grouping import group_numbers

LIMIT_DEFAULT = 1_000
LIMIT_MAX = 1_000_000


@dataclass(frozen=True)
class BoundCollect(BoundAggregate):
    """The least values, sorted: the same whatever order rows come in."""

    element: str
    is_set: bool
    limit: int | None

    @property
    def function(self) -> str:  # type: ignore[override]
        """With the limit: values beyond it are gone."""
        return f"collect_{'set' if self.is_set else 'list'}({self.limit})"

    @property
    def counts_duplicates(self) -> bool:  # type: ignore[override]
        """A list has them."""
        return not self.is_set

    @property
    def output(self) -> str:  # type: ignore[override]
        """A list."""
        return f"array<{self.element}>"

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:  # type: ignore[override]
        """The values."""
        return (Accumulator("", f"array<{self.element}>", Merge.OWN),)

    def create(self, arguments: Sequence[pa.Array]) -> list[pa.Array]:
        """A list of one value for each row, null if the value is."""
        return self.create_groups(arguments, np.arange(len(arguments[0]) + 1))

    def create_groups(self, arguments: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        """The values of each group."""
        is_there = arguments[0].is_valid()
        groups = group_numbers(offsets)[is_there.to_numpy(zero_copy_only=False)]
        return [self._collect(normalise_floats(arguments[0].filter(is_there)), groups, len(offsets) - 1)]

    def merge(self, columns: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        """The values of all lists of a group."""
        values, groups = flatten_lists(columns[0], group_numbers(offsets))
        return [self._collect(values, groups, len(offsets) - 1)]

    def result(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The list, empty if no value counted."""
        return fill_empty(columns[0])

    def _collect(self, values: pa.Array, groups: np.ndarray, count: int) -> pa.ListArray:
        if self.is_set:
            numbers, values = distinct_rows([groups, values])
            groups = numbers.to_numpy()
        return lists_of_groups(values, groups, count, self.limit)


@dataclass(frozen=True)
class BoundCountDistinct(BoundCollect):
    """The number of different values, from the values themselves.

    An operator that keeps accumulators for ever would rewrite all values of a key in every epoch: it keeps
    them in a table of their own instead, by key and value, and the number in the accumulator.
    """

    output = "bigint"
    function = "count_distinct"

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:  # type: ignore[override]
        """The values."""
        return (Accumulator("values", f"array<{self.element}>", Merge.OWN),)

    def result(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Their number."""
        return pc.fill_null(pc.cast(pc.list_value_length(columns[0]), pa.int64()), 0)


class Collect(Aggregate):
    """See `collect_list` and `collect_set`."""

    def __init__(self, argument: str, *, where: str | None, is_set: bool, limit: int) -> None:
        super().__init__(argument, where=where)
        self.function = "collect_set" if is_set else "collect_list"
        if type(limit) is not int or not 1 <= limit <= LIMIT_MAX:
            raise InvalidInputError(
                "the limit of a collection is out of range",
                object_name=f"{self}",
                found=repr(limit),
                expected=f"a number from 1 to {LIMIT_MAX:,}",
            )
        self._is_set, self._limit = is_set, limit

    def bind(self, types: Sequence[str], where: str, *, retracts: bool = False) -> BoundAggregate:
        """Takes what can be sorted."""
        if not has_order(types[0]):
            raise refuse_type(where, self, types[0], "a type with an order")
        return BoundCollect(types[0], self._is_set, self._limit)


class CountDistinct(Aggregate):
    """See `count_distinct`."""

    function = "count_distinct"

    def bind(self, types: Sequence[str], where: str, *, retracts: bool = False) -> BoundAggregate:
        """Takes plain types."""
        if not has_order(types[0]):
            raise refuse_type(where, self, types[0], "a plain type")
        return BoundCountDistinct(types[0], is_set=True, limit=None)


def collect_list(argument: str, *, limit: int = LIMIT_DEFAULT, where: str | None = None) -> Aggregate:
    """The values that are not null, sorted. If there are more than `limit`, the least of them."""
    return Collect(argument, where=where, is_set=False, limit=limit)


def collect_set(argument: str, *, limit: int = LIMIT_DEFAULT, where: str | None = None) -> Aggregate:
    """The different values that are not null, sorted. If there are more than `limit`, the least of them."""
    return Collect(argument, where=where, is_set=True, limit=limit)


def count_distinct(argument: str, *, where: str | None = None) -> Aggregate:
    """The exact number of different values that are not null. State grows with their number."""
    return CountDistinct(argument, where=where)
