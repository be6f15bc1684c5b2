"""Small data files in the shape of large ones: several row groups, columns that are fetched alone."""

from __future__ import annotations

from contextlib import ExitStack
from unittest.mock import patch

from lakestate.tables.runs import parquet


def shape_as_large() -> ExitStack:
    """From now until it is closed, files have row groups of a few rows, and column checksums."""
    stack = ExitStack()
    stack.enter_context(patch.object(parquet, "ROW_GROUP_ROWS", 3))
    stack.enter_context(patch.object(parquet, "COLUMN_CHECKSUMS_BYTES_MIN", 1))
    return stack
