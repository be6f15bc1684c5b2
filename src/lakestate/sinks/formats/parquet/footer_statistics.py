"""What the footer of a finished Parquet file says about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow.parquet as pq

from lakestate.sinks.formats.statistics import ColumnStatistics, FileStatistics

Physical = bool | int | float | bytes
"""A bound as Parquet stores it."""


def footer_statistics(metadata: pq.FileMetaData) -> FileStatistics:
    """The statistics in a footer.

    >>> import pyarrow as pa
    >>> sink = pa.BufferOutputStream()
    >>> pq.write_table(pa.table({"n": [3, 1, None]}), sink)
    >>> statistics = footer_statistics(pq.read_metadata(pa.BufferReader(sink.getvalue())))
    >>> statistics.row_count, statistics.columns[0].null_count, statistics.columns[0].lower
    (3, 1, 1)
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    numbers = range(metadata.num_columns) if groups else range(0)
    return FileStatistics(
        row_count=metadata.num_rows,
        columns=tuple(_column([group.column(number) for group in groups]) for number in numbers),
        split_offsets=tuple(_start(group) for group in groups),
    )


def _column(chunks: Sequence[pq.ColumnChunkMetaData]) -> ColumnStatistics:
    known = [chunk.statistics for chunk in chunks]
    counted = all(each is not None and each.has_null_count for each in known)
    return ColumnStatistics(
        path=chunks[0].path_in_schema,
        size_bytes=sum(chunk.total_compressed_size for chunk in chunks),
        value_count=sum(chunk.num_values for chunk in chunks),
        null_count=sum(each.null_count for each in known) if counted else None,
        lower=_bound(chunks, min, "min"),
        upper=_bound(chunks, max, "max"),
    )


def _bound(
    chunks: Sequence[pq.ColumnChunkMetaData], choose: Callable[..., Any], which: str
) -> Physical | None:
    """The least or greatest of the row groups' bounds; compared in their order, kept as stored."""
    bounds = []
    for chunk in chunks:
        known = chunk.statistics
        if known is None:
            return None
        if known.has_min_max:
            stored = getattr(known, f"{which}_raw")
            bounds.append((getattr(known, which) if _is_decoded(known) else stored, stored))
        elif not (known.has_null_count and known.null_count == chunk.num_values):
            return None
    if not bounds:
        return None
    chosen: Physical = choose(bounds, key=lambda bound: bound[0])[1]
    return chosen


def _is_decoded(known: pq.Statistics) -> bool:
    """Whether values must be decoded to be compared, because stored values have another order.

    Other values are compared as stored: some times fit no datetime, some text is not UTF-8, and a file
    that holds one must still be finished.
    """
    return bool(known.logical_type.type == "DECIMAL" or known.converted_type.startswith("UINT"))


def _start(group: pq.RowGroupMetaData) -> int:
    first = group.column(0)
    offsets = [first.data_page_offset, first.dictionary_page_offset]
    return int(min(offset for offset in offsets if offset))
