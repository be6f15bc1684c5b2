"""Decoding a whole data file, and hashing its keys meanwhile.

Hashing a column takes as long as decoding it. One thread decodes the keys of a large file and hashes them
while others decode the values, so that no processor waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakestate.storage.parallel import map_in_parallel
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs.hashes import add_hashes, can_add_hashes
from lakestate.tables.runs.layout import RunLayout
from lakestate.tables.runs.parquet import (
    THREADED_BYTES_MIN,
    check_row_count,
    leaf_count,
    read_row_groups,
    undecodable_error,
)
from lakestate.tables.runs.partial_read import FileBytes, FilePieces

VALUE_PARTS_MAX = 8
"""Opening the file for each of many small columns would take longer than decoding them."""


def decode_hashed_run(
    data: FileBytes, layout: RunLayout, shown: str, row_count: int
) -> tuple[pa.Table, CheckpointParquetMetadata]:
    """The rows of a whole file with the hashes of their keys in front, and what the file says that it is.

    The bytes are verified. Raises CorruptionError if they are not Parquet, or of another table.
    """
    file, is_large = _open(data, shown), data.size > THREADED_BYTES_MIN
    check_row_count(file.metadata, range(file.metadata.num_row_groups), row_count, shown)
    if is_large and _is_divisible(file, layout):
        identity = _identity(file.schema_arrow, layout, shown)
        return _decode_in_parts(data, file, layout, shown), identity
    rows = _read(file, shown, use_threads=is_large)
    identity = _identity(rows.schema, layout, shown)
    return add_hashes(rows, layout, shown), identity


def _open(data: FileBytes, shown: str, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    source = data.reader() if isinstance(data, FilePieces) else pa.BufferReader(data)
    try:
        return pq.ParquetFile(source, metadata=metadata, pre_buffer=False, page_checksum_verification=False)
    except (pa.ArrowException, OSError, ValueError) as cause:
        raise undecodable_error(shown, cause) from cause


def _is_divisible(file: pq.ParquetFile, layout: RunLayout) -> bool:
    """True if its keys can be told from its values. If not, reading it whole says what is wrong."""
    schema = file.schema_arrow
    leaves = sum(leaf_count(field.type) for field in schema)
    return can_add_hashes(schema, layout) and leaves == file.metadata.num_columns


def _identity(schema: pa.Schema, layout: RunLayout, shown: str) -> CheckpointParquetMetadata:
    identity = CheckpointParquetMetadata.from_key_values(schema.metadata, shown)
    identity.check(layout.config, shown)
    return identity


def _decode_in_parts(data: FileBytes, file: pq.ParquetFile, layout: RunLayout, shown: str) -> pa.Table:
    decode = partial(_decode_leaves, data, file.metadata, shown)
    keys, *values = _leaf_parts(file.schema_arrow, len(layout.key_names))

    def decode_part(leaves: Sequence[int]) -> pa.Table:
        return add_hashes(decode(leaves), layout, shown) if leaves is keys else decode(leaves)

    # The keys come first because they take longest.
    parts = map_in_parallel(decode_part, [keys, *values], pa.cpu_count())
    fields = [field for part in parts for field in part.schema]
    columns = [column for part in parts for column in part.columns]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata=file.schema_arrow.metadata))


def _decode_leaves(data: FileBytes, metadata: pq.FileMetaData, shown: str, leaves: Sequence[int]) -> pa.Table:
    # A file is not to be read by two threads; its parsed footer is.
    return _read(_open(data, shown, metadata), shown, leaves=leaves)


def _read(
    file: pq.ParquetFile, shown: str, *, leaves: Sequence[int] | None = None, use_threads: bool = False
) -> pa.Table:
    try:
        return read_row_groups(file, range(file.metadata.num_row_groups), use_threads, leaves)
    except (pa.ArrowException, OSError, ValueError) as cause:
        raise undecodable_error(shown, cause) from cause


def _leaf_parts(schema: pa.Schema, key_count: int) -> list[list[int]]:
    """The leaf columns of the keys, and those of the values in a few parts, each of whole columns."""
    ends = np.cumsum([0, *(leaf_count(field.type) for field in schema)]).tolist()
    values = range(key_count, len(schema))
    parts = np.array_split(values, min(len(values), VALUE_PARTS_MAX)) if values else []
    return [
        list(range(ends[first], ends[last + 1]))
        for first, last in [(0, key_count - 1), *((int(part[0]), int(part[-1])) for part in parts)]
    ]
