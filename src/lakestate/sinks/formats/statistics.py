"""What is known about a finished file, as a value that travels in a manifest.

Enough for a table format to plan scans without opening the file. Columns are named by their path
in the Parquet schema; the table format maps them to field ids.
"""

from __future__ import annotations

import msgspec


class ColumnStatistics(msgspec.Struct, frozen=True, array_like=True):
    """One leaf column over all row groups. A bound is None where any row group lacks it."""

    path: str
    size_bytes: int
    value_count: int
    null_count: int | None
    lower: bool | int | float | bytes | None
    upper: bool | int | float | bytes | None


class FileStatistics(msgspec.Struct, frozen=True):
    """A file as a table format wants to know it. Formats that have no more than a row count give that."""

    row_count: int
    columns: tuple[ColumnStatistics, ...] = ()
    split_offsets: tuple[int, ...] = ()
    """Where each row group begins, so that readers can share a file."""
