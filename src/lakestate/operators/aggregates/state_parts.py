"""What a running aggregate keeps: accumulators by key, and tables of values for those that need them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError, OperatorError
from lakestate.operators.aggregates.aggregate import Accumulator, BoundAggregate, Merge
from lakestate.operators.aggregates.collected import BoundCountDistinct
from lakestate.operators.aggregates.plain import BoundCount
from lakestate.operators.aggregates.plan import AggregatePlan
from lakestate.operators.aggregates.value_tables import (
    GROUP,
    VALUE,
    DistinctTable,
    MultisetTable,
    align,
    never_inserted,
    table_name,
)
from lakestate.protocol.metadata import Column
from lakestate.tables.arrow.grouping import number_groups

ROWS = "_rows"
"""The state column with the number of rows of a key, which is gone once it is 0."""
SIGN = "_sign"
"""The column that says whether a row counts, 1, or takes back one that did, -1."""

Update: TypeAlias = "Callable[[pa.Table], tuple[pa.Table, pa.Array | None]]"
"""From the accumulators before to those after, and which keys are still there: None if all are."""


@dataclass(frozen=True)
class DistinctTotal(BoundAggregate):
    """The number of different values, which are in a table of their own."""

    accumulators = (Accumulator("", "bigint", Merge.SUM),)
    output = "bigint"
    function = "count_distinct"

    def create(self, arguments: Sequence[pa.Array]) -> list[pa.Array]:
        """Nothing: only the table knows which values are new."""
        return [pa.nulls(len(arguments[0]), pa.int64())]

    def result(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The number."""
        return pc.fill_null(columns[0], 0)

    def negate(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """The number with the other sign."""
        return [pc.negate(columns[0])]


@dataclass(frozen=True)
class StateParts:
    """The aggregates of an operator by how they are kept."""

    key: tuple[str, ...]
    state: AggregatePlan
    """All aggregates as the accumulators of a key hold them."""
    arguments: Mapping[str, Sequence[str]] | None
    distinct: tuple[DistinctTable, ...]
    multisets: tuple[MultisetTable, ...]
    retracts: bool

    @classmethod
    def of(
        cls,
        key: tuple[Column, ...],
        plan: AggregatePlan,
        arguments: Mapping[str, Sequence[str]] | None,
        *,
        retracts: bool,
    ) -> StateParts:
        """The parts of a plan."""
        distinct: dict[str, list[str]] = {}
        multisets: dict[str, list[str]] = {}
        state: dict[str, BoundAggregate] = dict(plan.aggregates)
        for name, aggregate in plan.aggregates.items():
            if isinstance(aggregate, BoundCountDistinct):
                distinct.setdefault(table_name("distinct", plan.arguments[name]), []).append(name)
                state[name] = DistinctTotal()
            elif retracts and not aggregate.takes_back:
                multisets.setdefault(table_name("values", plan.arguments[name]), []).append(name)
        if retracts:
            state[ROWS] = BoundCount()

        def options(table: str, names: Sequence[str]) -> dict[str, Any]:
            assert arguments is not None, "Spark SQL cannot merge aggregates with tables of values"
            _check_names(key, names)
            return {
                "name": table,
                "key": key,
                "aggregates": {name: plan.aggregates[name] for name in names},
                "arguments": arguments,
                "types": tuple(argument.type for argument in plan.arguments[names[0]]),
            }

        return cls(
            tuple(column.name for column in key),
            AggregatePlan(state),
            arguments,
            tuple(DistinctTable(**options(*each), retracts=retracts) for each in distinct.items()),
            tuple(MultisetTable(**options(*each)) for each in multisets.items()),
            retracts,
        )

    @property
    def value_tables(self) -> tuple[DistinctTable | MultisetTable, ...]:
        """All tables of values."""
        return (*self.distinct, *self.multisets)

    def combine(self, rows: pa.Table, views: Mapping[str, Any]) -> tuple[pa.Table, Update]:
        """The keys of rows, each once, and how their accumulators change."""
        if self.retracts:
            return self._combine_changes(rows, views)
        if self.distinct:
            return self._combine_values(rows, views)
        combined = self._accumulate(rows, self.state, self.key)

        def merge(before: pa.Table) -> tuple[pa.Table, None]:
            return self.state.merge_aligned(before, combined), None

        return combined.select(self.key), merge

    def _combine_values(self, rows: pa.Table, views: Mapping[str, Any]) -> tuple[pa.Table, Update]:
        keys, numbers = number_groups(rows.select(self.key))
        numbered = rows.append_column(GROUP, pa.array(numbers))
        combined = align(self._accumulate(numbered, self.state, [GROUP]), keys.num_rows)
        combined = self._with_distinct(combined, rows, keys, numbers, None, views)

        def merge(before: pa.Table) -> tuple[pa.Table, None]:
            return self.state.merge_aligned(before, combined), None

        return keys, merge

    def _combine_changes(self, rows: pa.Table, views: Mapping[str, Any]) -> tuple[pa.Table, Update]:
        signs = _signs(rows)
        keys, numbers = number_groups(rows.select(self.key))
        numbered = rows.append_column(GROUP, pa.array(numbers))
        plus = self._part(numbered.filter(pa.array(signs > 0)), keys.num_rows)
        minus = self._part(numbered.filter(pa.array(signs < 0)), keys.num_rows)
        plus = self._with_distinct(plus, rows, keys, numbers, signs, views)
        columns: dict[str, pa.Array] = {}
        for each in self.multisets:
            found = each.recompute(rows, keys, numbers, signs, views[each.name])
            columns |= dict(zip(found.column_names, found.columns, strict=True))

        def change(before: pa.Table) -> tuple[pa.Table, pa.Array]:
            # First what is added: what is taken back may be among it.
            added = self._direct.merge_aligned(before, plus)
            after = self._direct.merge_aligned(added, self._direct.negate(minus))
            merged = dict(zip(after.column_names, after.columns, strict=True)) | columns
            return self._still_there(pa.table({name: merged[name] for name in self.state.schema.names}))

        return keys, change

    def _still_there(self, after: pa.Table) -> tuple[pa.Table, pa.Array]:
        counts = after[ROWS].combine_chunks()
        if counts.null_count or pc.min(counts).as_py() < 0:
            raise never_inserted(f"key {', '.join(self.key)}")
        return after, pc.greater(counts, 0)

    def _accumulate(self, rows: pa.Table, plan: AggregatePlan, by: Sequence[str]) -> pa.Table:
        if self.arguments is None:
            return plan.merge(rows, by)
        return plan.combine(rows, by, {**self.arguments, ROWS: ("1",)})

    def _part(self, rows: pa.Table, count: int) -> pa.Table:
        return align(self._accumulate(rows, self._direct, [GROUP]), count)

    def _with_distinct(
        self,
        combined: pa.Table,
        rows: pa.Table,
        keys: pa.Table,
        numbers: np.ndarray,
        signs: np.ndarray | None,
        views: Mapping[str, Any],
    ) -> pa.Table:
        """The accumulators with the numbers of values that are new."""
        for each in self.distinct:
            for name, grown in each.count_new(rows, keys, numbers, signs, views[each.name]).items():
                combined = combined.set_column(combined.schema.get_field_index(name), name, grown)
        return combined

    @cached_property
    def _direct(self) -> AggregatePlan:
        """The aggregates whose accumulators alone are enough."""
        others = {name for each in self.multisets for name in each.aggregates}
        return self.state.subset([name for name in self.state.aggregates if name not in others])


def _signs(rows: pa.Table) -> np.ndarray:
    signs = rows[SIGN].combine_chunks()
    if signs.null_count or not pc.all(pc.is_in(signs, pa.array([1, -1], signs.type))).as_py():
        raise OperatorError(
            "a row of a stream of changes does not say what it does",
            object_name="_change",
            expected="insert, update_preimage, update_postimage or delete",
        )
    return np.asarray(pc.cast(signs, pa.int64()))


def _check_names(key: Sequence[Column], names: Sequence[str]) -> None:
    taken = [name for name in (*(column.name for column in key), *names) if name.startswith(VALUE)]
    if taken:
        raise InvalidInputError(
            "a name is taken by a table of values",
            found=", ".join(taken),
            action=f"choose a name that does not begin with {VALUE}",
        )
