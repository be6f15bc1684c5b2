"""Rows as the files of a table hold them: the table's columns in its order, with its field ids.

A file names its columns by id, in the metadata of its schema, nested ones included; readers find
them by that, whatever the columns are called later.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lakestate.sinks.iceberg.types import file_type, missing_column_error, storable_type, unknown_column_error

FIELD_ID = b"PARQUET:field_id"


def file_schema(rows: pa.Schema, table: pa.Schema) -> pa.Schema:
    """The schema of files, for rows of one schema in a table of another with field ids.

    Optional columns that rows lack are left out: readers find no value there.

    >>> table = pa.schema([pa.field("n", pa.int64(), metadata={FIELD_ID: b"7"}), ("text", pa.large_string())])
    >>> schema = file_schema(pa.schema([("n", pa.int32())]), table)
    >>> schema.names, schema.field("n").type, schema.field("n").metadata
    (['n'], DataType(int64), {b'PARQUET:field_id': b'7'})
    """
    for name in rows.names:
        if name not in table.names:
            raise unknown_column_error(name, table.names)
    fields = []
    for field in table:
        if field.name in rows.names:
            fields.append(field.with_type(file_type(rows.field(field.name).type, field.type, field.name)))
        elif not field.nullable:
            raise missing_column_error(field.name, field.type)
    return pa.schema(fields)


def assign_field_ids(rows: pa.Schema) -> pa.Schema:
    """The schema of a table for such rows, with field ids that the catalog may still change.

    >>> schema = assign_field_ids(pa.schema([("n", pa.int8()), ("tags", pa.list_(pa.string()))]))
    >>> schema.field("tags").metadata, schema.field("tags").type.value_field.metadata
    ({b'PARQUET:field_id': b'2'}, {b'PARQUET:field_id': b'3'})
    """
    numbers = iter(range(1, 1 << 31))
    plain = [field.with_type(storable_type(field.type, field.name)) for field in rows]
    return pa.schema([_with_field_id(field, numbers) for field in plain])


def _with_field_id(field: pa.Field, numbers: Iterator[int]) -> pa.Field:
    numbered = field.with_metadata({FIELD_ID: str(next(numbers)).encode()})
    given = field.type
    if pa.types.is_struct(given):
        return numbered.with_type(pa.struct([_with_field_id(inner, numbers) for inner in given]))
    if pa.types.is_map(given):
        inner = (_with_field_id(given.key_field, numbers), _with_field_id(given.item_field, numbers))
        return numbered.with_type(pa.map_(*inner))
    if pa.types.is_list(given) or pa.types.is_large_list(given):
        return numbered.with_type(pa.list_(_with_field_id(given.value_field, numbers)))
    return numbered
