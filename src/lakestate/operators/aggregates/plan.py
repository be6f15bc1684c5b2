"""`AggregatePlan`: the named aggregates of an operator as columns: merged, evaluated, taken back.

Everything is done for all groups at once: accumulators that Arrow can merge in one pass of its hash
aggregation, the others in rows that are arranged by group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError, OperatorError
from lakestate.operators.aggregates.aggregate import Accumulator, Aggregate, BoundAggregate, Merge
from lakestate.protocol.metadata import Column
from lakestate.tables.arrow.columns import whole_column
from lakestate.tables.arrow.schema import arrow_type

ONE = "1"
"""The argument of a count of rows, which is no column."""
TRUE = "true"
"""The argument for rows that all count, which is no column either."""

_ROW = "__row"
_INT64_MAX = 2**63 - 1
_Own: TypeAlias = "Callable[[pa.Array, np.ndarray], dict[str, pa.Array]]"


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of an aggregate as it was written, without the filter, and its type."""

    expression: str
    type: str


@dataclass(frozen=True)
class AggregatePlan:
    """Aggregates by the names of their results, over arguments of known types."""

    aggregates: Mapping[str, BoundAggregate]
    arguments: Mapping[str, tuple[Argument, ...]] = field(default_factory=dict)
    """What each is computed from. Aggregates over the same arguments can share what they keep."""

    @classmethod
    def bind(
        cls,
        aggregates: Mapping[str, Aggregate],
        types: Mapping[str, Sequence[str]],
        where: str,
        *,
        time: str | None = None,
        retracts: bool = False,
    ) -> AggregatePlan:
        """The plan of aggregates over arguments of these types. `time` is the event time of rows."""
        bound, arguments = {}, {}
        for name, aggregate in aggregates.items():
            shown = f"{where}, {name}" if where else name
            bound[name] = aggregate.bind(types[name], shown, retracts=retracts)
            written = aggregate.all_arguments(time, shown)
            arguments[name] = tuple(
                Argument(text.strip(), type_) for text, type_ in zip(written, types[name], strict=False)
            )
        return cls(bound, arguments)

    @cached_property
    def accumulators(self) -> dict[str, Accumulator]:
        """All accumulators, by column."""
        found: dict[str, Accumulator] = {}
        for name, aggregate in self.aggregates.items():
            for accumulator, column in zip(aggregate.accumulators, self.columns_of(name), strict=True):
                if column in found:
                    raise InvalidInputError(
                        "two aggregates need the same column of state", found=column, action="rename one"
                    )
                found[column] = accumulator
        return found

    def columns_of(self, name: str) -> tuple[str, ...]:
        """The state columns of an aggregate: its name, with a suffix for all but the main one."""
        return tuple(
            f"{name}_{each.suffix}" if each.suffix else name for each in self.aggregates[name].accumulators
        )

    @property
    def state(self) -> tuple[Column, ...]:
        """The columns of state."""
        return tuple(Column(name, each.type) for name, each in self.accumulators.items())

    @property
    def meanings(self) -> dict[str, str]:
        """What each column of state holds: by it, aggregates may be added and removed, and not exchanged."""
        return {
            column: f"{aggregate.function} {accumulator.suffix}".strip()
            for name, aggregate in self.aggregates.items()
            for column, accumulator in zip(self.columns_of(name), aggregate.accumulators, strict=True)
        }

    @property
    def output(self) -> tuple[Column, ...]:
        """The columns of results."""
        return tuple(Column(name, each.output) for name, each in self.aggregates.items())

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of state as Arrow has them."""
        return pa.schema([(column.name, arrow_type(column.type)) for column in self.state])

    @cached_property
    def _own(self) -> dict[str, BoundAggregate]:
        """The aggregates that merge themselves."""
        return {name: each for name, each in self.aggregates.items() if _merges_itself(each)}

    @property
    def _own_columns(self) -> list[str]:
        return [column for name in self._own for column in self.columns_of(name)]

    def subset(self, names: Collection[str]) -> AggregatePlan:
        """Some of the aggregates."""
        return AggregatePlan(
            {name: each for name, each in self.aggregates.items() if name in names}, self.arguments
        )

    def combine(self, rows: pa.Table, by: Sequence[str], arguments: Mapping[str, Sequence[str]]) -> pa.Table:
        """The accumulators of the rows of each group, from the columns that each aggregate takes."""
        if not rows.num_rows:
            return pa.schema([*map(rows.schema.field, by), *self.schema]).empty_table()
        columns = {name: rows[name] for name in by}
        for name, aggregate in self.aggregates.items():
            if not _merges_itself(aggregate):
                created = aggregate.create([argument_column(rows, column) for column in arguments[name]])
                columns |= dict(zip(self.columns_of(name), created, strict=True))

        def create_own(order: pa.Array, offsets: np.ndarray) -> dict[str, pa.Array]:
            found: dict[str, pa.Array] = {}
            for name, aggregate in self._own.items():
                taken = [argument_column(rows, column).take(order) for column in arguments[name]]
                created = aggregate.create_groups(taken, offsets)
                found |= dict(zip(self.columns_of(name), created, strict=True))
            return found

        return self._group(pa.table(columns), by, create_own)

    def merge(self, rows: pa.Table, by: Sequence[str]) -> pa.Table:
        """Merge the accumulators of rows with the same columns `by`. The groups are in no order."""
        if not rows.num_rows:
            return rows

        def merge_own(order: pa.Array, offsets: np.ndarray) -> dict[str, pa.Array]:
            return self._merge_own(rows.select(self._own_columns).take(order), offsets)

        return self._group(rows, by, merge_own)

    def _group(self, rows: pa.Table, by: Sequence[str], own: _Own) -> pa.Table:
        """Groups of rows: what Arrow can merge from `rows`, the rest from rows in the order of groups."""
        with_arrow = [name for name, each in self.accumulators.items() if each.merge is not Merge.OWN]
        wanted = [(name, self.accumulators[name].merge.value, _OPTIONS) for name in with_arrow]
        grouped = rows.select([*by, *with_arrow])
        if self._own:
            grouped = grouped.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
            wanted.append((_ROW, "list", None))
        self._check_sums(grouped, with_arrow)
        found = grouped.group_by(list(by), use_threads=False).aggregate(wanted)
        columns = {name: found[name] for name in by}
        for name in with_arrow:
            columns[name] = found[f"{name}_{self.accumulators[name].merge.value}"]
        if self._own:
            lists = whole_column(found[f"{_ROW}_list"])
            columns |= own(lists.values, lists.offsets.to_numpy())
        schema = pa.schema([*map(rows.schema.field, by), *self.schema])
        return pa.table({name: columns[name] for name in schema.names}).cast(schema)

    def merge_aligned(self, before: pa.Table, rows: pa.Table) -> pa.Table:
        """Merge two tables row by row. Where there is nothing before, all its columns are null."""
        columns: dict[str, pa.Array] = {}
        for name, each in self.accumulators.items():
            if each.merge is not Merge.OWN:
                columns[name] = _merge_pair(
                    each.merge, whole_column(before[name]), whole_column(rows[name]), name
                )
        if len(columns) < len(self.accumulators):
            count = rows.num_rows
            pairs = np.arange(2 * count).reshape(2, count).T.ravel()
            both = pa.concat_tables([before.select(self._own_columns), rows.select(self._own_columns)])
            columns |= self._merge_own(both.take(pa.array(pairs)), np.arange(0, 2 * count + 1, 2))
        return pa.Table.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)

    def results(self, rows: pa.Table) -> dict[str, pa.Array]:
        """The results of groups, from their accumulators."""
        return {
            name: aggregate.result([whole_column(rows[column]) for column in self.columns_of(name)])
            for name, aggregate in self.aggregates.items()
        }

    def negate(self, rows: pa.Table) -> pa.Table:
        """Accumulators that take back what these have counted."""
        for name, aggregate in self.aggregates.items():
            negated = aggregate.negate([whole_column(rows[column]) for column in self.columns_of(name)])
            for column, values in zip(self.columns_of(name), negated, strict=True):
                rows = rows.set_column(rows.schema.get_field_index(column), column, values)
        return rows

    def _merge_own(self, arranged: pa.Table, offsets: np.ndarray) -> dict[str, pa.Array]:
        found: dict[str, pa.Array] = {}
        for name, aggregate in self._own.items():
            columns = self.columns_of(name)
            merged = aggregate.merge([whole_column(arranged[column]) for column in columns], offsets)
            found |= dict(zip(columns, merged, strict=True))
        return found

    def _check_sums(self, rows: pa.Table, names: Sequence[str]) -> None:
        """Refuse sums that may not fit: Arrow would wrap around without a word."""
        for name in names:
            is_sum = self.accumulators[name].merge is Merge.SUM
            if not is_sum or not pa.types.is_integer(rows.schema.field(name).type):
                continue
            span = pc.min_max(rows[name])
            largest = max(abs(span["min"].as_py() or 0), abs(span["max"].as_py() or 0))
            if largest * rows.num_rows > _INT64_MAX:
                _check_sum(rows[name], name)


def _merges_itself(aggregate: BoundAggregate) -> bool:
    return any(each.merge is Merge.OWN for each in aggregate.accumulators)


_OPTIONS = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)


def _check_sum(column: pa.ChunkedArray, name: str) -> None:
    """The sum of magnitudes fits if this passes; then that of every group does."""
    total = pc.sum(pc.cast(pc.abs(pc.cast(column, pa.decimal128(19, 0))), pa.decimal128(38, 0))).as_py()
    if total is not None and total > _INT64_MAX:
        raise _overflow(name)


def _merge_pair(merge: Merge, before: pa.Array, rows: pa.Array, name: str) -> pa.Array:
    if merge is Merge.SUM:
        return pc.coalesce(_add(before, rows, name), before, rows)
    if pa.types.is_boolean(before.type):
        both = pc.and_(before, rows) if merge is Merge.MIN else pc.or_(before, rows)
        return pc.coalesce(both, before, rows)
    type_ = before.type
    if pa.types.is_timestamp(type_):
        before, rows = before.cast(pa.int64()), rows.cast(pa.int64())
    choose = pc.min_element_wise if merge is Merge.MIN else pc.max_element_wise
    return choose(before, rows, skip_nulls=True).cast(type_)


def _add(before: pa.Array, rows: pa.Array, name: str) -> pa.Array:
    type_ = before.type
    try:
        if pa.types.is_decimal(type_):
            # The sum of two decimals has one digit more, which the narrow type may not hold.
            wide = pa.decimal256(type_.precision, type_.scale)
            return pc.add(before.cast(wide), rows.cast(wide)).cast(type_)
        return pc.add_checked(before, rows)
    except pa.ArrowInvalid as cause:
        raise _overflow(name) from cause


def _overflow(name: str) -> OperatorError:
    return OperatorError(
        "a sum does not fit into its type",
        object_name=name,
        action='sum a decimal, for example ls.sum("CAST(x AS DECIMAL(28, 0))")',
    )


def argument_column(rows: pa.Table, column: str) -> pa.Array:
    """A column that an aggregate takes."""
    if column in (ONE, TRUE):
        return pa.array(np.ones(rows.num_rows, dtype=np.int32 if column == ONE else bool))
    return whole_column(rows[column])


def changed_rows(plan: AggregatePlan, before: pa.Table, after: pa.Table) -> pa.Array:
    """Which rows of two aligned tables of results differ; two nulls are equal."""
    differ: pa.Array | None = None
    for name in plan.aggregates:
        one, other = whole_column(before[name]), whole_column(after[name])
        same = pc.or_kleene(pc.fill_null(_equal(one, other), False), pc.and_(one.is_null(), other.is_null()))
        differ = pc.invert(same) if differ is None else pc.or_(differ, pc.invert(same))
    assert differ is not None, "there is at least one aggregate"
    return differ


def _equal(one: pa.Array, other: pa.Array) -> pa.Array:
    if pa.types.is_nested(one.type):
        return pa.array(list(_nested_equal(one, other)))
    if pa.types.is_floating(one.type):
        return pc.or_(pc.equal(one, other), pc.and_(pc.is_nan(one), pc.is_nan(other)))
    return pc.equal(one, other)


def _nested_equal(one: pa.Array, other: pa.Array) -> Iterator[bool]:
    yield from (left == right for left, right in zip(one.to_pylist(), other.to_pylist(), strict=True))
