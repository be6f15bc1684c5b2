"""Rows by group, in columns: what aggregates that merge themselves are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.tables.arrow.columns import whole_column


def sum_by_group(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The sums of groups of rows, none of them empty."""
    return np.add.reduceat(values, offsets[:-1]) if len(values) else values


def best_rows(
    by: pa.Array, value: pa.Array, groups: np.ndarray, *, greatest: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The row of each group with the least or greatest `by`, and of these with the least or greatest value.

    Rows without `by` do not count. Among equals, NaN and null lose. Returns groups and their rows.
    """
    function = "max" if greatest else "min"
    table = pa.table({"group": groups, "by": by, "row": np.arange(len(groups))})
    table = table.filter(by.is_valid())
    best = table.group_by("group", use_threads=False).aggregate([("by", function)])
    of_group = np.zeros(int(groups[-1]) + 1 if len(groups) else 0, dtype=np.int64)
    of_group[best["group"].to_numpy()] = np.arange(best.num_rows)
    wanted = best[f"by_{function}"].take(pa.array(of_group[table["group"].to_numpy()]))
    table = table.filter(pc.equal(table["by"], wanted)).select(["group", "row"])
    if table.num_rows > best.num_rows:
        table = table.append_column("value", value.take(table["row"].combine_chunks()))
        order = "descending" if greatest else "ascending"
        table = table.take(pc.sort_indices(table, [("group", "ascending"), ("value", order)]))
        first = np.unique(table["group"].to_numpy(), return_index=True)[1]
        table = table.take(pa.array(first))
    return table["group"].to_numpy(), table["row"].to_numpy()


def normalise_floats(values: pa.Array) -> pa.Array:
    """The same values, of which all NaN are one, and zero has no sign."""
    if not pa.types.is_floating(values.type):
        return values
    zero = pa.scalar(0.0, values.type)
    nan = pa.scalar(float("nan"), values.type)
    return pc.if_else(pc.is_nan(values), nan, pc.if_else(pc.equal(values, zero), zero, values))


def lists_of_groups(values: pa.Array, groups: np.ndarray, count: int, limit: int | None) -> pa.ListArray:
    """The values of each group as a sorted list of at most `limit` of the least; null for a group without."""
    table = pa.table({"group": groups, "value": values})
    table = table.take(pc.sort_indices(table, [("group", "ascending"), ("value", "ascending")]))
    groups = table["group"].to_numpy()
    starts = np.searchsorted(groups, np.arange(count))
    if limit is not None:
        keep = np.arange(len(groups)) - starts[groups] < limit
        table, groups = table.filter(pa.array(keep)), groups[keep]
    offsets = np.searchsorted(groups, np.arange(count + 1)).astype(np.int32)
    is_empty = pa.array(np.diff(offsets) == 0)
    type_ = pa.list_(pa.field("element", values.type))
    return pa.ListArray.from_arrays(
        pa.array(offsets), whole_column(table["value"]), type=type_, mask=is_empty if len(is_empty) else None
    )


def flatten_lists(lists: pa.ListArray, groups: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """The values in lists, and for each the group of its list."""
    return pc.list_flatten(lists), groups[pc.list_parent_indices(lists).to_numpy()]


def fill_empty(lists: pa.ListArray) -> pa.ListArray:
    """The lists, empty where they are null."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pc.list_flatten(lists), type=lists.type)


def distinct_rows(columns: Sequence[pa.Array | np.ndarray]) -> list[pa.Array]:
    """The different rows of columns."""
    names = [str(number) for number in range(len(columns))]
    found = pa.table(list(columns), names=names).group_by(names, use_threads=False).aggregate([])
    return [whole_column(found[name]) for name in names]
