"""Runs as Parquet: how rows become bytes, and bytes rows again.

Encodings are chosen for mostly distinct columns, where dictionaries only cost. Row groups
are small enough to be worth skipping and carry page checksums, statistics and a page index, so a
subtask that owns a part of the keys reads only that part, verified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from lakestate.errors import CorruptionError

ROW_GROUP_ROWS = 128 * 1024
COMPRESSION = "zstd"
COMPRESSION_LEVEL = 1


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Where a row group lies in its file."""

    start: int
    length: int
    row_count: int


def encode_run(rows: pa.Table, key_values: Mapping[bytes, bytes]) -> pa.Buffer:
    """The Parquet bytes of rows."""
    sink = pa.BufferOutputStream()
    with run_writer(sink, rows.schema, key_values) as writer:
        writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
    return sink.getvalue()


def run_writer(sink: object, schema: pa.Schema, key_values: Mapping[bytes, bytes]) -> pq.ParquetWriter:
    """A writer for rows that arrive in pieces."""
    return pq.ParquetWriter(
        sink,
        schema.with_metadata(dict(key_values)),
        compression=COMPRESSION,
        compression_level=COMPRESSION_LEVEL,
        use_dictionary=False,
        column_encoding=_encodings(schema),
        write_statistics=True,
        write_page_index=True,
        write_page_checksum=True,
        store_schema=True,
    )


THREADED_BYTES_MIN = 1 << 20
"""Waking threads costs two milliseconds, which is longer than decoding a small file takes."""


def decode_run(data: pa.Buffer, object_name: str) -> pa.Table:
    """The rows of a whole file whose bytes were verified."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False, page_checksum_verification=False)
        return file.read(use_threads=data.size > THREADED_BYTES_MIN)
    except (pa.ArrowException, OSError, ValueError) as cause:
        raise undecodable(object_name, cause) from cause


def undecodable(object_name: str, cause: BaseException) -> CorruptionError:
    """The error for a file that matches its checksum and still is no Parquet."""
    return CorruptionError(
        "data file is not readable as Parquet",
        object_name=object_name,
        found=str(cause)[:200],
        action="restore the object, or open an epoch that does not need it",
    )


def row_groups(metadata: pq.FileMetaData) -> tuple[RowGroup, ...]:
    """Where the row groups of a file lie."""
    found = []
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        columns = [group.column(number) for number in range(group.num_columns)]
        start = min(
            column.dictionary_page_offset or column.data_page_offset
            if column.has_dictionary_page
            else column.data_page_offset
            for column in columns
        )
        length = sum(column.total_compressed_size for column in columns)
        found.append(RowGroup(start, length, group.num_rows))
    return tuple(found)


def _encodings(schema: pa.Schema) -> dict[str, str]:
    """Measured on distinct keys: a third of the time and three quarters of the bytes of the default."""
    return {field.name: encoding for field in schema if (encoding := _encoding(field.type)) is not None}


def _encoding(type_: pa.DataType) -> str | None:
    if pa.types.is_integer(type_) and type_.bit_width >= 32:
        return "DELTA_BINARY_PACKED"
    if pa.types.is_timestamp(type_) or pa.types.is_date32(type_):
        return "DELTA_BINARY_PACKED"
    if pa.types.is_floating(type_):
        return "BYTE_STREAM_SPLIT"
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return "DELTA_BYTE_ARRAY"
    if pa.types.is_large_string(type_) or pa.types.is_large_binary(type_):
        return "DELTA_BYTE_ARRAY"
    return None
