"""The difference of two tables of rows: by key, or as bags of equal rows. Pure, in columns.

Equality is that of keys everywhere: nulls equal nulls, NaN equals NaN, and both zeros are equal. Nested
values are compared by their text, which is slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.tables.arrow.wide_text import one_array
from lakestate.tables.runs.key_equality import comparable_bits, same_keys


@dataclass(frozen=True, slots=True)
class Difference:
    """Places of rows: those that are new, those that are gone, and pairs of an old and a new row."""

    inserted: np.ndarray
    """Among the rows after."""
    deleted: np.ndarray
    """Among the rows before."""
    old: np.ndarray
    new: np.ndarray


def difference_by_key(before: pa.Table, after: pa.Table, keys: Sequence[str]) -> Difference:
    """The difference of rows with unique keys. A key whose other columns differ is updated."""
    grouped = _grouped(before, after, keys, [("old", "max"), ("new", "max")])
    old, new = grouped.column("old_max"), grouped.column("new_max")
    has_old, has_new = pc.is_valid(old), pc.is_valid(new)
    both = grouped.filter(pc.and_(has_old, has_new))
    olds, news = _places(both.column("old_max")), _places(both.column("new_max"))
    values = [name for name in before.column_names if name not in keys]
    same = _same_values(before.select(values), olds, after.select(values), news)
    return Difference(
        inserted=_places(new.filter(pc.invert(has_old))),
        deleted=_places(old.filter(pc.invert(has_new))),
        old=olds[~same],
        new=news[~same],
    )


def difference_of_bags(before: pa.Table, after: pa.Table) -> Difference:
    """The difference of rows that may be equal to each other: how many more or fewer of each there are."""
    names = before.column_names
    grouped = _grouped(before, after, names, [("old", "max"), ("new", "max"), ("side", "sum")])
    more = grouped.column("side_sum").to_numpy()
    inserted, deleted = grouped.filter(pa.array(more > 0)), grouped.filter(pa.array(more < 0))
    return Difference(
        inserted=np.repeat(_places(inserted.column("new_max")), more[more > 0]),
        deleted=np.repeat(_places(deleted.column("old_max")), -more[more < 0]),
        old=np.empty(0, dtype=np.int64),
        new=np.empty(0, dtype=np.int64),
    )


def _grouped(
    before: pa.Table, after: pa.Table, names: Sequence[str], sums: Sequence[tuple[str, str]]
) -> pa.Table:
    """One row for each combination of the named columns: where it is before and after, and how often."""
    old, new = before.num_rows, after.num_rows
    columns = [
        pa.concat_arrays([_comparable(before.column(name)), _comparable(after.column(name))])
        for name in names
    ]
    groups = [f"c{number}" for number in range(len(columns))]
    places = np.concatenate([np.arange(old), np.arange(new)])
    is_new = np.arange(old + new) >= old
    rows = pa.table(
        {
            **dict(zip(groups, columns, strict=True)),
            "old": pa.array(places, mask=is_new),
            "new": pa.array(places, mask=~is_new),
            "side": pa.array(np.where(is_new, 1, -1)),
        }
    )
    return rows.group_by(groups, use_threads=False).aggregate(sums)


def _same_values(before: pa.Table, olds: np.ndarray, after: pa.Table, news: np.ndarray) -> np.ndarray:
    if not before.num_columns:
        return np.ones(len(olds), dtype=bool)
    there, here = pa.array(olds), pa.array(news)
    return same_keys(
        [_comparable(column.take(there)) for column in before.columns],
        [_comparable(column.take(here)) for column in after.columns],
    )


def _comparable(column: pa.ChunkedArray) -> pa.Array:
    """The column as one of a plain type, in which equal values are equal."""
    whole = one_array(column)
    if pa.types.is_floating(whole.type):
        return comparable_bits(whole)
    if pa.types.is_nested(whole.type):
        return pa.array([None if item is None else repr(item) for item in whole.to_pylist()], pa.string())
    return whole


def _places(column: pa.ChunkedArray) -> np.ndarray:
    places: np.ndarray = column.to_numpy()
    return places.astype(np.int64)
