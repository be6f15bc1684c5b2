"""Arrow types and the types of Iceberg columns: what can be stored, and what fits into a table.

Pure, and without pyiceberg: here the types of a table are Arrow types with field ids.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as is_type

from lakestate.errors import InvalidInputError
from lakestate.sinks.table_format.types import StorableTypes


def storable_type(given: pa.DataType, path: str) -> pa.DataType:
    """The type of a column that is created for values of a type.

    >>> storable_type(pa.dictionary(pa.int32(), pa.string()), "kind"), storable_type(pa.uint16(), "port")
    (DataType(string), DataType(int32))
    """
    return _STORABLE.of(given, path)


def file_type(rows: pa.DataType, table: pa.DataType, path: str) -> pa.DataType:
    """The type in files, for rows of one type in a table column of another: nothing may be lost.

    It is the table's, field ids included, but text keeps the offsets that rows have.

    >>> file_type(pa.int32(), pa.int64(), "n")
    DataType(int64)
    >>> file_type(pa.int64(), pa.int32(), "n")
    Traceback (most recent call last):
    lakestate.errors.InvalidInputError: a column does not fit into the table: n; found int64; ...
    """
    plain = storable_type(rows, path)
    if is_type.is_struct(table) and is_type.is_struct(plain):
        return _file_struct(plain, table, path)
    if is_type.is_large_list(table) and (is_type.is_list(plain) or is_type.is_large_list(plain)):
        element = table.value_field
        element = element.with_type(file_type(plain.value_type, element.type, f"{path}.element"))
        return pa.large_list(element) if is_type.is_large_list(plain) else pa.list_(element)
    if is_type.is_map(table) and is_type.is_map(plain):
        key, item = table.key_field, table.item_field
        return pa.map_(
            key.with_type(file_type(plain.key_type, key.type, f"{path}.key")),
            item.with_type(file_type(plain.item_type, item.type, f"{path}.value")),
        )
    if not _fits(plain, table):
        raise InvalidInputError(
            "a column does not fit into the table",
            object_name=path,
            found=rows,
            expected=table,
            action="cast it before the sink, or widen the column of the table",
        )
    return plain if _is_text(table) else table


def _file_struct(rows: pa.StructType, table: pa.StructType, path: str) -> pa.DataType:
    names = [field.name for field in table]
    for field in rows:
        if field.name not in names:
            raise unknown_column_error(f"{path}.{field.name}", names)
    fields = []
    for field in table:
        number = rows.get_field_index(field.name)
        if number < 0 and not field.nullable:
            raise missing_column_error(f"{path}.{field.name}", field.type)
        inner = (
            field.type
            if number < 0
            else file_type(rows.field(number).type, field.type, f"{path}.{field.name}")
        )
        fields.append(field.with_type(inner))
    return pa.struct(fields)


def missing_column_error(path: str, expected: pa.DataType) -> InvalidInputError:
    """A required column of the table that rows lack."""
    return InvalidInputError(
        "rows lack a column that the table requires",
        object_name=path,
        expected=expected,
        action="add it before the sink, or make it optional in the table",
    )


def unknown_column_error(path: str, names: list[str]) -> InvalidInputError:
    """A column of the rows that the table lacks."""
    return InvalidInputError(
        "the table lacks a column of the rows",
        object_name=path,
        expected=", ".join(names),
        action="add it to the table, or drop it before the sink",
    )


def _storable_plain(given: pa.DataType) -> pa.DataType | None:
    if is_type.is_integer(given) and given.bit_width <= 32 and not is_type.is_uint32(given):
        return pa.int32()
    if is_type.is_int64(given) or is_type.is_uint32(given):
        return pa.int64()
    return pa.time64("us") if is_type.is_time(given) else _storable_bytes(given)


def _storable_bytes(given: pa.DataType) -> pa.DataType | None:
    if is_type.is_string(given) or is_type.is_string_view(given):
        return pa.string()
    if is_type.is_binary_view(given):
        return pa.binary()
    known = (
        is_type.is_large_string(given)
        or is_type.is_binary(given)
        or is_type.is_large_binary(given)
        or is_type.is_fixed_size_binary(given)
        or given == pa.uuid()
    )
    return given if known else None


def _is_text(given: pa.DataType) -> bool:
    """Text and bytes of any length: their offsets do not matter to a file."""
    return bool(is_type.is_large_string(given) or is_type.is_large_binary(given))


def _fits(rows: pa.DataType, table: pa.DataType) -> bool:
    if is_type.is_large_string(table):
        return bool(is_type.is_string(rows) or is_type.is_large_string(rows))
    if is_type.is_large_binary(table):
        return bool(is_type.is_binary(rows) or is_type.is_large_binary(rows))
    if table == pa.uuid() and rows == pa.binary(16):
        return True
    if is_type.is_timestamp(table) and is_type.is_timestamp(rows):
        return (table.tz is None) == (rows.tz is None)
    if is_type.is_decimal(table) and is_type.is_decimal(rows):
        return bool(table.scale == rows.scale and table.precision >= rows.precision)
    widened = ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))
    return bool(rows == table) or (rows, table) in widened


_STORABLE = StorableTypes("an Iceberg table", _storable_plain)
