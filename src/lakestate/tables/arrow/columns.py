"""Columns of Arrow as code wants to hold them: in one piece, and tables side by side."""

from __future__ import annotations

import pyarrow as pa


def whole_column(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def beside(left: pa.Table, right: pa.Table) -> pa.Table:
    """The columns of two tables with as many rows, next to each other.

    >>> beside(pa.table({"user": ["ann"]}), pa.table({"n": [1]})).to_pylist()
    [{'user': 'ann', 'n': 1}]
    """
    return pa.table([*left.columns, *right.columns], names=[*left.column_names, *right.column_names])
