"""Columns with more than two gigabytes of text or bytes, nested or not, which need 64-bit offsets.

A large run holds such a column in one chunk, because it is searched. Where rows leave the run they have
the declared types again, in as many chunks as needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from lakestate.tables.arrow.buffers import value_offsets
from lakestate.tables.arrow.value_limits import bytes_before, cut_places

CHUNK_BYTES_MAX = 1 << 30
"""Half of what 32-bit offsets can address."""

_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


def wide_type(type_: pa.DataType) -> pa.DataType:
    """The type with 64-bit offsets, at any depth.

    >>> wide_type(pa.list_(pa.string()))
    LargeListType(large_list<item: large_string>)
    """
    if pa.types.is_struct(type_):
        return pa.struct([_wide_field(field) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_wide_field(type_.key_field), _wide_field(type_.item_field))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.large_list(_wide_field(type_.value_field))
    return _WIDE.get(type_, type_)


def _wide_field(field: pa.Field) -> pa.Field:
    return field.with_type(wide_type(field.type))


def widen_text(rows: pa.Table) -> pa.Table:
    """The rows, with 64-bit offsets if they are so large that a column might need them."""
    if rows.nbytes <= CHUNK_BYTES_MAX:
        return rows
    fields = [_wide_field(field) for field in rows.schema]
    return rows.cast(pa.schema(fields, metadata=rows.schema.metadata))


def combine_chunks(rows: pa.Table) -> pa.Table:
    """The rows, one chunk per column, or more where one cannot hold them."""
    if not any(_is_large(column) for column in rows.columns):
        return rows.combine_chunks()
    columns = [column if _is_large(column) else column.combine_chunks() for column in rows.columns]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _is_large(column: pa.ChunkedArray) -> bool:
    is_narrow = column.type != wide_type(column.type)
    return bool(column.num_chunks > 1 and is_narrow and column.nbytes > CHUNK_BYTES_MAX)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array, with 64-bit offsets if it needs them."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.nbytes > CHUNK_BYTES_MAX:
        column = column.cast(wide_type(column.type))
    return column.combine_chunks()


def narrow_text(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows in exactly these types."""
    if rows.schema.equals(schema):
        return rows
    columns = [
        narrow_text_column(column, field.type) for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def narrow_text_column(column: pa.ChunkedArray | pa.Array, type_: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """A column in a type; text with 64-bit offsets is split into chunks that need only 32 bits.

    >>> narrow_text_column(pa.array(["a", "b"], pa.large_string()), pa.string()).type
    DataType(string)
    """
    if column.type == type_:
        return column
    if column.type != wide_type(type_):
        return column.cast(type_)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    anew = _rebase_text if type_ in _WIDE else _rebase_nested
    return pa.chunked_array([anew(part, type_) for chunk in chunks for part in _narrow_slices(chunk)], type_)


def _rebase_nested(part: pa.Array, type_: pa.DataType) -> pa.Array:
    """A copy of nested values whose offsets begin at zero, so that it can be cast."""
    return pa.concat_arrays([part, pa.array([], part.type)]).cast(type_)


def _rebase_text(part: pa.Array, type_: pa.DataType) -> pa.Array:
    """An array over the same bytes with 32-bit offsets. A cast refuses offsets that begin above 32 bits."""
    offsets, data = value_offsets(part), part.buffers()[2]
    counted = (offsets - offsets[0]).astype(np.int32)
    content = pa.py_buffer(b"") if data is None else data.slice(int(offsets[0]), int(counted[-1]))
    validity = None
    if part.null_count:
        valid = part.is_valid().to_numpy(zero_copy_only=False)
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [validity, pa.py_buffer(counted), content]
    return pa.Array.from_buffers(type_, len(part), buffers, part.null_count)


def concat_rows(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """All rows in these types; one chunk per column, or more where one cannot hold them."""
    return combine_chunks(pa.concat_tables([narrow_text(rows, schema) for rows in tables]))


def _narrow_slices(chunk: pa.Array) -> list[pa.Array]:
    """Slices of an array, each with fewer bytes than 32-bit offsets can address."""
    places = cut_places(bytes_before(chunk), CHUNK_BYTES_MAX)
    return [chunk.slice(start, stop - start) for start, stop in pairwise(places)] or [chunk]
