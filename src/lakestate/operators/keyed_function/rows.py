"""Rows in columns as Python values, grouped by key."""

from __future__ import annotations

import gc
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError
from lakestate.operators.selection.codes import group_codes, is_integral, pack_codes
from lakestate.operators.selection.sorted_rows import SortedRows
from lakestate.tables.arrow.columns import whole_column

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAN = float("nan")
_NO_TIME = -(2**63)


@dataclass(frozen=True, slots=True)
class KeyGroups:
    """The rows of an epoch by key. Iterating yields the rows of one key after the other."""

    keys: pa.Table
    """One row for each key."""
    rows: list[Any]
    """All rows as named tuples, those of a key next to each other and sorted."""
    offsets: list[int]
    """Where the rows of each key begin, and where the last ones end."""
    latest_us: list[int | None]
    """The latest event time of each key's rows."""

    def __iter__(self) -> Iterator[list[Any]]:
        return (self.rows[start:stop] for start, stop in pairwise(self.offsets))


def key_groups(rows: pa.Table, key: Sequence[str], time: str | None) -> KeyGroups:
    """Group rows by key, each group in order of event time; ties in the order of the other columns.

    The order must not depend on that in which rows arrive: an epoch that runs again gets them in another.
    """
    order = _row_order(rows, time)
    numbers = _group_numbers(rows.select(list(key)).take(pa.array(order)))
    by_group = np.argsort(numbers, kind="stable")
    arranged = rows.take(pa.array(order[by_group]))
    offsets = np.flatnonzero(np.diff(numbers[by_group], prepend=-1, append=-1))
    return KeyGroups(
        arranged.select(list(key)).take(pa.array(offsets[:-1])),
        named_rows(arranged),
        offsets.tolist(),
        _latest(arranged, offsets, time),
    )


def named_rows(rows: pa.Table) -> list[Any]:
    """Rows as named tuples. A column whose name Python does not allow is called by its number."""
    names = tuple(rows.column_names)
    row = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    columns = zip(*map(python_values, rows.columns), strict=True)
    with no_collection():
        return list(map(partial(tuple.__new__, row), columns))


@contextmanager
def no_collection() -> Iterator[None]:
    """Python's garbage collector does not run inside: it would visit what is made, and find no garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def python_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """A column as Python values. Arrow's own way is slow for times."""
    with no_collection():
        if not pa.types.is_timestamp(column.type) or column.type.unit != "us":
            return column.to_pylist()  # type: ignore[no-any-return]
        if column.type.tz is None or column.null_count:
            naive = whole_column(column).cast(pa.timestamp("us")).to_numpy(zero_copy_only=False).tolist()
            if column.type.tz is None:
                return list(naive)
            return [None if value is None else value.replace(tzinfo=UTC) for value in naive]
        since = whole_column(column).cast(pa.int64()).to_numpy().view("timedelta64[us]")
        # Adding is several times as fast as setting the time zone of each.
        return list(map(_EPOCH.__add__, since.tolist()))


def row_columns(rows: list[Any], names: Sequence[str], where: str) -> list[Any]:
    """The columns of rows that a function yielded: tuples, dicts, or some of both."""
    if all(type(row) is tuple and len(row) == len(names) for row in rows):
        return list(zip(*rows, strict=True))
    return list(zip(*(_as_tuple(row, names, where) for row in rows), strict=True))


def _as_tuple(row: Any, names: Sequence[str], where: str) -> tuple[Any, ...]:
    if isinstance(row, Mapping):
        unknown = [name for name in row if name not in names]
        if unknown:
            raise InvalidInputError(
                "a keyed function yielded columns that its output does not have",
                object_name=where,
                found=", ".join(unknown),
                expected=", ".join(names),
            )
        return tuple(map(row.get, names))
    if not isinstance(row, tuple | list) or len(row) != len(names):
        raise InvalidInputError(
            "a keyed function yielded what is not a row of its output",
            object_name=where,
            found=repr(row)[:200],
            expected=f"a dict, or a tuple of {', '.join(names)}",
        )
    return tuple(row)


def python_keys(keys: pa.Table) -> list[Any]:
    """Keys as functions see them: a value, or a tuple if there are several columns."""
    columns = [_hashable_values(column) for column in keys.columns]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _hashable_values(column: pa.ChunkedArray) -> list[Any]:
    """Values of which equal ones are the same key, NaN too."""
    values = python_values(column)
    if pa.types.is_floating(column.type):
        return [_NAN if value != value else value for value in values]
    return values


def _latest(rows: pa.Table, offsets: np.ndarray, time: str | None) -> list[int | None]:
    """The last time that is not null of each group, whose rows are sorted by it: nulls come last."""
    if time is None or not rows.num_rows:
        return [None] * (len(offsets) - 1)
    times = pc.cast(rows[time], pa.int64())
    filled = pc.fill_null(times, _NO_TIME).to_numpy()
    latest = np.maximum.reduceat(filled, offsets[:-1])
    return [None if value == _NO_TIME else value for value in latest.tolist()]


def _row_order(rows: pa.Table, time: str | None) -> np.ndarray:
    """The order of rows by time and then by all columns from left to right: ascending, nulls last."""
    names = [name for name in (time, *rows.column_names) if name is not None]
    count = rows.num_rows
    order = SortedRows(np.arange(count), np.arange(count) == 0)
    return order.break_ties(rows.select(list(dict.fromkeys(names))), nulls_first=False).rows


def _group_numbers(keys: pa.Table) -> np.ndarray:
    """For each row the number of its key, counted in the order in which keys are first met."""
    codes = group_codes(keys.columns)
    if len(codes) == 1 and not is_integral(keys.column(0).type):
        # Arrow has numbered the values in this order.
        return codes[0]
    words = [word for word, _ in pack_codes(codes)]
    numbers = words[0]
    for word in words[1:]:
        numbers = np.unique(np.stack([numbers, word]), axis=1, return_inverse=True)[1]
    _, first, numbers = np.unique(numbers, return_index=True, return_inverse=True)
    places = np.empty(len(first), dtype=np.int64)
    places[np.argsort(first)] = np.arange(len(first))
    return places[numbers]
