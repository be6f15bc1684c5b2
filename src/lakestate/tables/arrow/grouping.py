"""Rows by group, in columns: which rows are equal, and where those of each group are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

_ROW = "__row"


@dataclass(frozen=True, slots=True)
class RowGroups:
    """The rows of a table by group: those of group i are `rows[offsets[i] : offsets[i + 1]]`, in order."""

    keys: pa.Table
    """The different rows, one for each group."""
    rows: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, keys: pa.Table) -> RowGroups:
        """The groups of equal rows, in the order in which they begin."""
        with_rows = keys.append_column(_ROW, pa.array(np.arange(keys.num_rows)))
        found = with_rows.group_by(keys.column_names, use_threads=False).aggregate([(_ROW, "list")])
        lists = found[f"{_ROW}_list"].combine_chunks()
        return cls(found.select(keys.column_names), lists.values.to_numpy(), lists.offsets.to_numpy())


def group_numbers(offsets: np.ndarray) -> np.ndarray:
    """For each row, the number of its group: rows from offsets[i] up to offsets[i + 1] are group i.

    >>> group_numbers(np.array([0, 2, 3])).tolist()
    [0, 0, 1]
    """
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def number_groups(keys: pa.Table) -> tuple[pa.Table, np.ndarray]:
    """The different rows of a table, and for each of its rows the number of its own among them.

    >>> different, numbers = number_groups(pa.table({"user": ["ann", "bob", "ann"]}))
    >>> different["user"].to_pylist(), numbers.tolist()
    (['ann', 'bob'], [0, 1, 0])
    """
    groups = RowGroups.of(keys)
    numbers = np.empty(keys.num_rows, dtype=np.int64)
    numbers[groups.rows] = group_numbers(groups.offsets)
    return groups.keys, numbers
