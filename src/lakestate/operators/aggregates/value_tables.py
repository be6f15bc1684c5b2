"""Values in tables of their own, for aggregates that one row of accumulators per key cannot hold.

A table has a row for each key and value. `DistinctTable` counts different values: a row is written when a
value is new, and the cost of an epoch follows its new values, not all values of a key. `MultisetTable` keeps
all values of rows that may be taken back, for aggregates such as max that cannot subtract: those of a key
are read again whenever one of them changes.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import OperatorError
from lakestate.operators.aggregates.aggregate import BoundAggregate
from lakestate.operators.aggregates.groups import normalise_floats
from lakestate.operators.aggregates.plan import AggregatePlan, Argument, argument_column
from lakestate.protocol.metadata import Column
from lakestate.tables.arrow.schema import arrow_fields
from lakestate.tables.keyed.table import KeyedTable

GROUP = "__group"
VALUE = "_value"
_TOUCHED = "__touched"
_NAME_CHARS_MAX = 40


@dataclass(frozen=True)
class ValueTable:
    """The values of aggregates over the same expressions, each with a filter of its own."""

    name: str
    key: tuple[Column, ...]
    aggregates: Mapping[str, BoundAggregate]
    arguments: Mapping[str, Sequence[str]]
    """The columns of rows that each aggregate takes."""
    types: tuple[str, ...]

    @property
    def evolves(self) -> bool:
        """Whether aggregates may be added: rows that were there before do not count for them."""
        return False

    @property
    def values(self) -> list[str]:
        """The key columns that hold the values."""
        return [VALUE] if len(self.types) == 1 else [f"{VALUE}_{n}" for n in range(1, len(self.types) + 1)]

    @property
    def key_names(self) -> list[str]:
        """The key columns of the stream."""
        return [column.name for column in self.key]

    def declare(self, value_type: str, description: str) -> KeyedTable:
        """The state table, with a column for each aggregate."""
        values = [Column(name, type_) for name, type_ in zip(self.values, self.types, strict=True)]
        return KeyedTable(
            self.name,
            key=pa.schema(arrow_fields((*self.key, *values))),
            value=pa.schema(arrow_fields([Column(name, value_type) for name in self.aggregates])),
            route_by=self.key_names,
            description=description,
            meanings=dict.fromkeys(self.aggregates, "count_distinct") if self.evolves else None,
        )

    def net_counts(self, rows: pa.Table, numbers: np.ndarray, signs: np.ndarray | None) -> pa.Table:
        """By group and value: how many rows each aggregate counts more than before."""
        taken = {
            name: [argument_column(rows, column) for column in self.arguments[name]]
            for name in self.aggregates
        }
        counts = {name: aggregate.rows_that_count(taken[name]) for name, aggregate in self.aggregates.items()}
        columns: dict[str, Any] = {GROUP: pa.array(numbers)}
        for place, value in enumerate(self.values):
            found = [arguments[place] for arguments in taken.values()]
            columns[value] = normalise_floats(pc.coalesce(*found) if len(found) > 1 else found[0])
        ones = np.ones(rows.num_rows, dtype=np.int64) if signs is None else signs
        for name, each in counts.items():
            columns[name] = pa.array(np.where(each.to_numpy(zero_copy_only=False), ones, 0))
        some = np.logical_or.reduce([each.to_numpy(zero_copy_only=False) for each in counts.values()])
        return self._sum(pa.table(columns).filter(pa.array(some)))

    def _sum(self, pairs: pa.Table, *others: tuple[str, str]) -> pa.Table:
        by = [GROUP, *self.values]
        wanted = [(name, "sum") for name in self.aggregates]
        found = pairs.group_by(by, use_threads=False).aggregate([*wanted, *others])
        names = {f"{name}_{function}": name for name, function in [*wanted, *others]}
        return found.rename_columns([names.get(name, name) for name in found.column_names])

    def pair_keys(self, pairs: pa.Table, keys: pa.Table) -> pa.Table:
        """The keys of this table: those of the stream, and the values."""
        of_groups = keys.take(pairs[GROUP])
        return pa.table(
            [*of_groups.columns, *pairs.select(self.values).columns], names=[*self.key_names, *self.values]
        )


@dataclass(frozen=True)
class DistinctTable(ValueTable):
    """The different values of each key, for `count_distinct`."""

    retracts: bool

    @property
    def evolves(self) -> bool:
        """Unless a row that did not count could be taken back."""
        return not self.retracts

    @cached_property
    def table(self) -> KeyedTable:
        """With a count of rows if they may be taken back, and otherwise whether there is one."""
        return self.declare(
            "bigint" if self.retracts else "boolean",
            "The different values of every key, and which aggregates count them.",
        )

    def count_new(
        self, rows: pa.Table, keys: pa.Table, numbers: np.ndarray, signs: np.ndarray | None, view: Any
    ) -> dict[str, pa.Array]:
        """By how much the number of different values of each key grows. Values that are new are stored."""
        net = self.net_counts(rows, numbers, signs)
        pairs = self.pair_keys(net, keys)
        before = view.get(pairs)
        groups = net[GROUP].to_numpy()
        found: dict[str, pa.Array] = {}
        stored: dict[str, pa.Array] = {}
        changed = np.zeros(net.num_rows, dtype=bool)
        for name in self.aggregates:
            old = pc.fill_null(pc.cast(before[name], pa.int64()), 0).to_numpy()
            new = old + net[name].to_numpy()
            _require_positive(new, name, self.name)
            grows = (new > 0).astype(np.int64) - (old > 0)
            found[name] = pa.array(np.bincount(groups, grows, keys.num_rows).astype(np.int64))
            changed |= new != old if self.retracts else grows != 0
            stored[name] = pa.array(new) if self.retracts else pa.array(new > 0)
        _store(view, pairs, stored, changed)
        return found


@dataclass(frozen=True)
class MultisetTable(ValueTable):
    """All values of each key with their numbers, for aggregates that cannot take a value back."""

    @cached_property
    def table(self) -> KeyedTable:
        """With the number of rows that each aggregate counts."""
        return self.declare("bigint", "The values of every key, and how many rows have each.")

    def recompute(
        self, rows: pa.Table, keys: pa.Table, numbers: np.ndarray, signs: np.ndarray, view: Any
    ) -> pa.Table:
        """The accumulators of all keys from all of their values, after those of these rows are stored."""
        net = self.net_counts(rows, numbers, signs)
        stored = view.get_prefix(keys)
        known = pa.table(
            [stored[view.QUERY], *(stored[name] for name in (*self.values, *self.aggregates))],
            names=[GROUP, *self.values, *self.aggregates],
        )
        both = pa.concat_tables(
            [
                known.append_column(_TOUCHED, pa.array(np.zeros(known.num_rows, dtype=np.int8))),
                net.select(known.column_names).append_column(
                    _TOUCHED, pa.array(np.ones(net.num_rows, dtype=np.int8))
                ),
            ]
        )
        values = self._sum(both, (_TOUCHED, "max"))
        counts = {name: pc.fill_null(values[name], 0).combine_chunks() for name in self.aggregates}
        for name, each in counts.items():
            _require_positive(each.to_numpy(), name, self.name)
        touched = values[_TOUCHED].to_numpy() > 0
        _store(view, self.pair_keys(values, keys), counts, touched)
        columns: dict[str, pa.Array] = {}
        for name in self.aggregates:
            columns |= self._accumulate(name, values, counts[name].to_numpy(), keys.num_rows)
        return pa.table(columns)

    def _accumulate(self, name: str, values: pa.Table, counts: np.ndarray, groups: int) -> dict[str, Any]:
        aggregate = self.aggregates[name]
        plan = AggregatePlan({name: aggregate})
        places = np.arange(len(counts))
        places = np.repeat(places, counts) if aggregate.counts_duplicates else places[counts > 0]
        rows = values.select([GROUP, *self.values]).take(pa.array(places))
        arguments = list(self.values)
        for number, constant in enumerate(aggregate.constant_arguments):
            rows = rows.append_column(f"__{number}", pa.array([constant] * rows.num_rows, pa.bool_()))
            arguments.append(f"__{number}")
        found = plan.combine(rows, [GROUP], {name: arguments})
        aligned = align(found, groups)
        return {column: aligned[column] for column in plan.columns_of(name)}


def align(found: pa.Table, count: int) -> pa.Table:
    """The rows of groups in the order of their numbers, null for a group without."""
    places = np.full(count, -1)
    places[found[GROUP].to_numpy()] = np.arange(found.num_rows)
    return found.drop_columns([GROUP]).combine_chunks().take(pa.array(places, mask=places < 0))


def table_name(kind: str, arguments: Sequence[Argument]) -> str:
    """The name of the table for values of arguments. It does not depend on the names of aggregates.

    >>> table_name("distinct", [Argument("bidder", "bigint")])
    'distinct_bidder'
    >>> table_name("values", [Argument("lower(url)", "string"), Argument("ts", "timestamp")])
    'values_lower_url_ts_98825907'
    """
    text = ", ".join(argument.expression for argument in arguments)
    if re.fullmatch(r"[A-Za-z0-9_]{1,40}", text):
        return f"{kind}_{text}"
    plain = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")[:_NAME_CHARS_MAX]
    return f"{kind}_{plain}_{zlib.crc32(text.encode()):08x}"


def _store(view: Any, pairs: pa.Table, counts: Mapping[str, pa.Array], changed: np.ndarray) -> None:
    """Write the rows that changed, and delete those that no aggregate counts any more."""
    some = np.zeros(len(changed), dtype=bool)
    for each in counts.values():
        some |= each.to_numpy(zero_copy_only=False) > 0
    rows = pa.table([*pairs.columns, *counts.values()], names=[*pairs.column_names, *counts])
    view.put(rows.filter(pa.array(changed & some)))
    view.delete(pairs.filter(pa.array(changed & ~some)))


def _require_positive(counts: np.ndarray, name: str, table: str) -> None:
    if len(counts) and counts.min() < 0:
        raise never_inserted(f"{name} in table {table}")


def never_inserted(where: str) -> OperatorError:
    """The error for changes that do not follow from each other."""
    return OperatorError(
        "changes take back a row that they never inserted",
        object_name=where,
        expected="for each delete or update_preimage, an equal row that was inserted before",
        action="look at where the changes come from: rows are missing, or were changed on the way",
    )
