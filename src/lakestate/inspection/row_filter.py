"""Which rows of a table are wanted: by values of columns, by whole keys, or by an expression.

A filter says which columns it needs, which keys it can only match, for a search that reads little, and
drops from a batch the rows that it does not match. Nulls match nulls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError
from lakestate.protocol.names import did_you_mean
from lakestate.tables.arrow.exact_values import exact_array
from lakestate.tables.arrow.wide_text import one_array
from lakestate.tables.hashing.routing import routing_keys
from lakestate.tables.runs.key_equality import comparable_bits, same_keys
from lakestate.tables.runs.lookup import span_places

Where: TypeAlias = Mapping[str, Any] | pc.Expression
"""A dict from columns to a value or a list of values, or an expression over the columns."""

Keys: TypeAlias = Mapping[str, Any] | Sequence[Any] | pa.Table | pa.RecordBatch | str | int | float | bytes
"""A key, several of them, or Arrow rows with key columns."""

PUSHED_KEYS_MAX = 100_000
"""More combinations of values than this are not searched for one by one."""


class RowFilter(Protocol):
    """Which rows are wanted."""

    @property
    def columns(self) -> Collection[str]:
        """The columns that `apply` needs."""
        ...

    @property
    def keys(self) -> Mapping[str, pa.Array] | None:
        """Values of some columns, one row for each combination that can match; None if there may be any."""
        ...

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that match."""
        ...


@dataclass(frozen=True)
class AllRows:
    """Every row."""

    columns: Collection[str] = ()
    keys: Mapping[str, pa.Array] | None = None

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch."""
        return batch


@dataclass(frozen=True)
class RowsWithValues:
    """Rows that have one of the given values in each of some columns."""

    values: Mapping[str, pa.Array]

    @property
    def columns(self) -> Collection[str]:
        """The given columns."""
        return self.values.keys()

    @cached_property
    def keys(self) -> Mapping[str, pa.Array] | None:
        """Every combination of the values, unless there are very many."""
        counts = [len(values) for values in self.values.values()]
        if reduce(lambda product, count: product * count, counts, 1) > PUSHED_KEYS_MAX:
            return None
        places = np.indices(counts).reshape(len(counts), -1)
        return {
            name: values.take(pa.array(rows))
            for (name, values), rows in zip(self.values.items(), places, strict=True)
        }

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows whose values are among the given ones."""
        for name, values in self.values.items():
            column = batch.column(name)
            if pa.types.is_floating(column.type):
                column, values = comparable_bits(column), comparable_bits(values)
            batch = batch.filter(pc.is_in(column, values))
        return batch


@dataclass(frozen=True)
class RowsWithKeys:
    """Rows whose values in some key columns are among given combinations."""

    keys: Mapping[str, pa.Array]

    @property
    def columns(self) -> Collection[str]:
        """The given key columns."""
        return self.keys.keys()

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows whose key is given. Found by hash, and then compared."""
        hashes, order = self._sorted_hashes
        columns = [batch.column(name) for name in self.keys]
        wanted = routing_keys(columns)
        low, high = (
            np.searchsorted(hashes, wanted, side="left"),
            np.searchsorted(hashes, wanted, side="right"),
        )
        places, rows = span_places(low, high)
        asked, here = pa.array(order[places]), pa.array(rows)
        same = same_keys(
            [key.take(asked) for key in self.keys.values()], [each.take(here) for each in columns]
        )
        return batch.take(pa.array(np.unique(rows[same])))

    @cached_property
    def _sorted_hashes(self) -> tuple[np.ndarray, np.ndarray]:
        hashes = routing_keys(list(self.keys.values()))
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order


@dataclass(frozen=True)
class RowsOfExpression:
    """Rows for which an expression is true."""

    expression: pc.Expression
    columns: Collection[str]
    """All columns of the table: an expression does not tell which it uses."""
    keys: Mapping[str, pa.Array] | None = None

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for which the expression is true."""
        rows = pa.Table.from_batches([batch]).filter(self.expression).combine_chunks()
        return rows.to_batches()[0] if rows.num_rows else batch.slice(0, 0)


def parse_where(where: Where | None, schema: pa.Schema, table: str) -> RowFilter:
    """The filter that somebody wrote, checked against the columns of a table."""
    if where is None:
        return AllRows()
    if isinstance(where, pc.Expression):
        return _parse_expression(where, schema, table)
    if not isinstance(where, Mapping):
        raise InvalidInputError(
            "not a filter",
            object_name=f"table {table}",
            found=repr(where)[:80],
            expected="a dict of columns, or an expression of pyarrow.compute",
        )
    require_columns(where, schema, table)
    return RowsWithValues(
        {name: _values(wanted, schema.field(name), table) for name, wanted in where.items()}
    )


def key_filter(keys: Keys, schema: pa.Schema, key_columns: Sequence[str], table: str) -> RowFilter:
    """The filter for whole keys, or for some key columns."""
    if isinstance(keys, pa.Table | pa.RecordBatch):
        given: Mapping[str, Any] = {name: keys.column(name) for name in keys.schema.names}
    else:
        dicts = _as_dicts(keys, key_columns, table)
        given = _columns_of(dicts, table) if dicts else {name: [] for name in key_columns}
    others = [name for name in given if name not in key_columns]
    if others or not given:
        raise InvalidInputError(
            f"table {table} has no such key column",
            object_name=", ".join(others) or "no column",
            expected=f"some of {', '.join(key_columns)}",
            action=None
            if not others
            else did_you_mean(others[0], key_columns) or "filter values with `where`",
        )
    return RowsWithKeys({name: _array(values, schema.field(name), table) for name, values in given.items()})


def require_columns(names: Iterable[str], schema: pa.Schema, table: str) -> list[str]:
    """The names, if the table has all of them, and at least one is given."""
    wanted = [names] if isinstance(names, str) else list(names)
    unknown = [name for name in wanted if name not in schema.names]
    if unknown or not wanted:
        raise InvalidInputError(
            f"table {table} has no such column" if unknown else "no column is named",
            object_name=", ".join(map(str, unknown)) or None,
            found=", ".join(schema.names),
            action=did_you_mean(str(unknown[0]), schema.names) if unknown else None,
        )
    return wanted


def _parse_expression(expression: pc.Expression, schema: pa.Schema, table: str) -> RowFilter:
    try:
        schema.empty_table().filter(expression)
    except (pa.ArrowException, ValueError, TypeError) as cause:
        raise InvalidInputError(
            f"table {table} cannot be filtered so",
            object_name=str(expression)[:200],
            found=str(cause).splitlines()[0],
            expected=f"a condition on {', '.join(schema.names)}",
        ) from cause
    return RowsOfExpression(expression, schema.names)


def _as_dicts(keys: Any, key_columns: Sequence[str], table: str) -> list[Mapping[str, Any]]:
    listed = list(keys) if isinstance(keys, list | tuple | set | frozenset) else [keys]
    if all(isinstance(key, Mapping) for key in listed):
        return listed
    if len(key_columns) != 1 or any(isinstance(key, Mapping) for key in listed):
        raise InvalidInputError(
            f"not a key of table {table}",
            found=repr(keys)[:80],
            expected="a dict, a list of dicts or an Arrow table, with columns " + ", ".join(key_columns),
        )
    return [{key_columns[0]: key} for key in listed]


def _columns_of(keys: Sequence[Mapping[str, Any]], table: str) -> dict[str, list[Any]]:
    names = list(keys[0])
    for key in keys:
        if set(key) != set(names):
            raise InvalidInputError(
                f"keys of table {table} have different columns",
                found=", ".join(map(str, key)),
                expected=", ".join(map(str, names)),
            )
    return {name: [key[name] for key in keys] for name in names}


def _values(wanted: Any, column: pa.Field, table: str) -> pa.Array:
    many = isinstance(wanted, list | tuple | set | frozenset | pa.Array | pa.ChunkedArray)
    return _array(wanted if many else [wanted], column, table)


def _array(values: Any, column: pa.Field, table: str) -> pa.Array:
    """Values as an array of a column's type, exactly."""
    try:
        if isinstance(values, pa.Array | pa.ChunkedArray):
            whole = one_array(values) if isinstance(values, pa.ChunkedArray) else values
            return whole.cast(column.type)
        if pa.types.is_nested(column.type):
            raise TypeError(f"{column.type} has no plain values")
    except (pa.ArrowException, TypeError) as cause:
        raise InvalidInputError(
            f"a value does not fit column {column.name} of table {table}",
            found=repr(values)[:80],
            expected=str(column.type),
            action=str(cause).splitlines()[0],
        ) from cause
    return exact_array(list(values), column.type, column.name)
