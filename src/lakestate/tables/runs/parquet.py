"""Runs as Parquet: how rows become bytes, and bytes rows again.

Encodings are chosen for mostly distinct columns, where dictionaries only cost. Row groups are small
enough to be worth skipping, and have page checksums, statistics and a page index, so that a subtask
that owns a part of the keys reads and verifies only that part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from lakestate.errors import RESTORE_OR_GO_BACK, CorruptionError
from lakestate.tables.arrow.value_limits import LONG_BYTES, bytes_before, cut_places, is_text, longest_bytes

ROW_GROUP_ROWS = 128 * 1024
NESTED_BYTES_MAX = 1 << 30
COMPRESSION = "zstd"
COMPRESSION_LEVEL = 1


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The position of a row group in its file."""

    start: int
    length: int
    row_count: int


def encode_run(rows: pa.Table, key_values: Mapping[bytes, bytes], *, is_sorted: bool = True) -> pa.Buffer:
    """The Parquet bytes of rows."""
    sink = pa.BufferOutputStream()
    with run_writer(sink, rows.schema, key_values, long_columns([rows]), is_sorted=is_sorted) as writer:
        for start, stop in row_group_bounds(rows):
            writer.write_table(rows.slice(start, stop - start), row_group_size=stop - start)
    return sink.getvalue()


def row_group_bounds(rows: pa.Table) -> Iterator[tuple[int, int]]:
    """Where row groups begin and end, limited by rows and by bytes of nested values.

    Arrow cannot read back a row group with more than 2 GiB of text inside arrays, maps or structs.
    """
    nested = [column for column in rows.columns if pa.types.is_nested(column.type)]
    for start in range(0, len(rows), ROW_GROUP_ROWS):
        stop = min(len(rows), start + ROW_GROUP_ROWS)
        places = {start, stop}
        for column in (column.slice(start, stop - start) for column in nested):
            if column.nbytes > NESTED_BYTES_MAX:
                sizes = [np.diff(bytes_before(chunk)) for chunk in column.chunks]
                before = np.cumsum(np.concatenate([[0], *sizes]))
                places.update(start + place for place in cut_places(before, NESTED_BYTES_MAX))
        yield from pairwise(sorted(places))


def long_columns(tables: Iterable[pa.Table]) -> frozenset[str]:
    """The columns with a value so long that statistics and common prefixes only cost."""
    return frozenset(
        name
        for table in tables
        for name, column in zip(table.column_names, table.columns, strict=True)
        if column.nbytes >= LONG_BYTES and longest_bytes(column) >= LONG_BYTES
    )


def run_writer(
    sink: object,
    schema: pa.Schema,
    key_values: Mapping[bytes, bytes],
    long: frozenset[str] = frozenset(),
    *,
    is_sorted: bool = True,
) -> pq.ParquetWriter:
    """A writer for rows that arrive in pieces. `long` are the columns with long values.

    Texts that are not sorted share no prefixes: looking for them takes time. Their lengths apart from their
    bytes, which Zstd likes better than both in turns, take a third less time than the default. Nobody looks
    for some of such rows by statistics.
    """
    return pq.ParquetWriter(
        sink,
        schema.with_metadata(dict(key_values)),
        compression=COMPRESSION,
        compression_level=COMPRESSION_LEVEL,
        use_dictionary=False,
        column_encoding=_encodings(schema, long, is_sorted),
        write_statistics=_columns_with_statistics(schema, long) if is_sorted else False,
        write_page_index=is_sorted,
        write_page_checksum=True,
        store_schema=True,
    )


def _columns_with_statistics(schema: pa.Schema, long: frozenset[str]) -> list[str] | bool:
    return [name for name in schema.names if name not in long] if long else True


COLUMN_CHECKSUMS = b"lakestate.column_checksums"
"""The key in Parquet's metadata under which a file has the xxh3 of each of its column chunks."""
COLUMN_CHECKSUMS_BYTES_MIN = 1 << 20
"""A smaller file is fetched whole: a second request takes longer than its bytes."""


def has_column_checksums(size_bytes: int) -> bool:
    """True if a file is large enough for its columns to be worth fetching alone."""
    return size_bytes >= COLUMN_CHECKSUMS_BYTES_MIN


def footer_with_checksums(
    data: pa.Buffer, schema: pa.Schema, key_values: Mapping[bytes, bytes]
) -> tuple[int, pa.Buffer]:
    """Where the footer of a file begins, and a footer that says the same and has column checksums.

    Pages cannot vouch for themselves: their checksums do not cover their headers. A reference has the
    checksum of the footer, and so of the checksums in it.
    """
    metadata = pq.read_metadata(pa.BufferReader(data))
    digests = [
        xxhash.xxh3_64_hexdigest(data.slice(chunk.start, chunk.length))
        for group in range(metadata.num_row_groups)
        for chunk in column_chunks(metadata, group)
    ]
    blank = pa.BufferOutputStream()
    with run_writer(blank, schema, {**key_values, COLUMN_CHECKSUMS: "".join(digests).encode()}):
        pass
    described = pq.read_metadata(pa.BufferReader(blank.getvalue()))
    described.append_row_groups(metadata)
    footer = pa.BufferOutputStream()
    described.write_metadata_file(footer)
    length = int.from_bytes(data.slice(data.size - 8, 4).to_pybytes(), "little")
    return data.size - 8 - length, footer.getvalue().slice(len(b"PAR1"))


def column_checksums(metadata: pq.FileMetaData) -> list[list[int]] | None:
    """For each row group the checksums of its column chunks; None if the file has none.

    Raises ValueError if they are not those of this file.
    """
    stored = (metadata.metadata or {}).get(COLUMN_CHECKSUMS)
    if stored is None:
        return None
    width, count = 16 * metadata.num_columns, metadata.num_row_groups
    if len(stored) != width * count:
        raise ValueError(f"{len(stored)} digits of column checksums")
    return [
        [int(stored[start : start + 16], 16) for start in range(group * width, (group + 1) * width, 16)]
        for group in range(count)
    ]


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """The position of a column chunk in its file."""

    start: int
    length: int


def column_chunks(metadata: pq.FileMetaData, group: int) -> list[ColumnChunk]:
    """The positions of the column chunks of a row group, one for each leaf column."""
    found = metadata.row_group(group)
    columns = [found.column(number) for number in range(found.num_columns)]
    return [ColumnChunk(_chunk_start(column), column.total_compressed_size) for column in columns]


def leaves_of(schema: pa.Schema, names: Collection[str]) -> list[int]:
    """The numbers of the leaf columns that the columns of these names consist of.

    By position and not by Parquet's path, in which field `r` of `q` looks like a column `q.r`.
    """
    found: list[int] = []
    place = 0
    for field in schema:
        count = leaf_count(field.type)
        found += range(place, place + count) if field.name in names else ()
        place += count
    return found


def leaf_count(type_: pa.DataType) -> int:
    """How many leaf columns a column of this type has."""
    if not pa.types.is_nested(type_):
        return 1
    return sum(leaf_count(type_.field(number).type) for number in range(type_.num_fields))


def _chunk_start(column: pq.ColumnChunkMetaData) -> int:
    if column.has_dictionary_page and column.dictionary_page_offset:
        return int(column.dictionary_page_offset)
    return int(column.data_page_offset)


THREADED_BYTES_MIN = 1 << 20
"""Waking threads takes two milliseconds, longer than decoding a small file."""


def decode_run(data: pa.Buffer, object_name: str, row_count: int) -> pa.Table:
    """The rows of a whole file whose bytes are verified, if their number matches the reference."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False, page_checksum_verification=False)
        check_row_count(file.metadata, range(file.metadata.num_row_groups), row_count, object_name)
        return read_row_groups(file, range(file.metadata.num_row_groups), data.size > THREADED_BYTES_MIN)
    except (pa.ArrowException, OSError, ValueError) as cause:
        raise undecodable_error(object_name, cause) from cause


def read_row_groups(
    file: pq.ParquetFile,
    groups: Sequence[int],
    use_threads: bool = True,
    leaves: Sequence[int] | None = None,
) -> pa.Table:
    """The rows of some row groups, all at once if Arrow can read them so; all columns, or some leaves."""
    # Not by the names of columns, which Arrow takes as paths: see `leaves_of`.
    read, options = file.reader.read_row_groups, {"column_indices": leaves, "use_threads": use_threads}
    try:
        return read(list(groups), **options)
    except pa.ArrowNotImplementedError:
        # More than 2 GiB of text inside arrays, maps or structs; each row group has less.
        return pa.concat_tables([read([each], **options) for each in groups])


def check_row_count(
    metadata: pq.FileMetaData, groups: Iterable[int], row_count: int, object_name: str
) -> None:
    """Refuse row groups of more or fewer rows than the reference says, before they are decoded.

    A few bytes can encode any number of equal rows; the reference bounds the memory of decoding.
    """
    there = metadata.num_row_groups
    found = sum(metadata.row_group(index).num_rows for index in groups if index < there)
    if found != row_count:
        raise CorruptionError(
            "data file has another number of rows than its reference says",
            object_name=object_name,
            found=f"{found} rows",
            expected=f"{row_count} rows",
            action=RESTORE_OR_GO_BACK,
        )


def undecodable_error(object_name: str, cause: BaseException) -> CorruptionError:
    """The error for a file that matches its checksum but is not Parquet."""
    return CorruptionError(
        "data file is not readable as Parquet",
        object_name=object_name,
        found=str(cause)[:200],
        action=RESTORE_OR_GO_BACK,
    )


def row_groups(metadata: pq.FileMetaData) -> tuple[RowGroup, ...]:
    """The positions of the row groups of a file."""
    found = []
    for index in range(metadata.num_row_groups):
        chunks = column_chunks(metadata, index)
        start, length = min(chunk.start for chunk in chunks), sum(chunk.length for chunk in chunks)
        found.append(RowGroup(start, length, metadata.row_group(index).num_rows))
    return tuple(found)


def _encodings(schema: pa.Schema, long: frozenset[str], is_sorted: bool) -> dict[str, str]:
    """Measured on distinct keys: a third of the time and three quarters of the bytes of the default.

    Arrow takes names as paths: a column named `q.r` would also match field `r` of a struct `q`, whose
    type may not support the encoding.
    """
    chosen = {field.name: _encoding(field.type, is_sorted) for field in schema}
    chosen |= dict.fromkeys(long, "DELTA_LENGTH_BYTE_ARRAY")
    return {name: encoding for name, encoding in chosen.items() if encoding is not None and "." not in name}


def _encoding(type_: pa.DataType, is_sorted: bool) -> str | None:
    if pa.types.is_integer(type_) and type_.bit_width >= 32:
        return "DELTA_BINARY_PACKED"
    if pa.types.is_timestamp(type_) or pa.types.is_date32(type_):
        return "DELTA_BINARY_PACKED"
    if pa.types.is_floating(type_):
        return "BYTE_STREAM_SPLIT"
    if is_text(type_):
        return "DELTA_BYTE_ARRAY" if is_sorted else "DELTA_LENGTH_BYTE_ARRAY"
    return None
