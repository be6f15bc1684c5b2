"""Rows in columns as Python values, grouped by key."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.tables.arrow.columns import whole_column
from lakestate.tables.arrow.grouping import RowGroups

_NAN = float("nan")
_NO_TIME = -(2**63)


@dataclass(frozen=True, slots=True)
class KeyGroups:
    """The rows of an epoch by key."""

    keys: pa.Table
    """One row for each key."""
    rows: list[Any]
    """All rows as named tuples, those of a key next to each other and sorted."""
    offsets: list[int]
    """Where the rows of each key begin, and where the last ones end."""
    latest_us: list[int | None]
    """The latest event time of each key's rows."""

    def __iter__(self) -> Iterator[tuple[int, list[Any]]]:
        for number, (start, stop) in enumerate(zip(self.offsets, self.offsets[1:], strict=False)):
            yield number, self.rows[start:stop]


def key_groups(rows: pa.Table, key: Sequence[str], time: str | None) -> KeyGroups:
    """Group rows by key, each group in order of event time; ties in the order of the other columns.

    The order must not depend on that in which rows arrive: an epoch that runs again gets them in another.
    """
    order = [name for name in [time, *rows.column_names] if name is not None and _has_order(rows, name)]
    order = list(dict.fromkeys(order))
    sorted_ = rows.sort_by([(name, "ascending") for name in order]) if order else rows
    groups = RowGroups.of(sorted_.select(list(key)))
    arranged = sorted_.take(pa.array(groups.rows))
    return KeyGroups(
        groups.keys, named_rows(arranged), groups.offsets.tolist(), _latest(arranged, groups.offsets, time)
    )


def named_rows(rows: pa.Table) -> list[Any]:
    """Rows as named tuples. A column whose name Python does not allow is called by its number."""
    names = tuple(rows.column_names)
    row = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    return list(map(row._make, zip(*map(python_values, rows.columns), strict=True)))


def python_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """A column as Python values. Arrow's own way is slow for times."""
    if pa.types.is_timestamp(column.type) and column.type.unit == "us":
        naive = whole_column(column).cast(pa.timestamp("us")).to_numpy(zero_copy_only=False).tolist()
        if column.type.tz is None:
            return list(naive)
        return [None if value is None else value.replace(tzinfo=UTC) for value in naive]
    return column.to_pylist()  # type: ignore[no-any-return]


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


def _has_order(rows: pa.Table, name: str) -> bool:
    return not pa.types.is_nested(rows.schema.field(name).type)
