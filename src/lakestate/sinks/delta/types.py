"""Arrow types and the types of Delta columns: what can be stored, and what fits into a table. Pure.

The types of a table are the Arrow types that deltalake gives for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.types as is_type

from lakestate.errors import InvalidInputError
from lakestate.protocol.names import did_you_mean
from lakestate.sinks.table_format.types import StorableTypes

INVALID_NAME_CHARS = " ,;{}()\n\t="
"""A column whose name has one of them needs column mapping, without which Spark cannot read it."""

EXACT_DIGITS = 15
"""Digits of a decimal that survive the way through a double."""

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}


def storable_schema(rows: pa.Schema) -> pa.Schema:
    """The schema of a table that is created for such rows.

    >>> storable_schema(pa.schema([("port", pa.uint16()), ("kind", pa.large_string())]))
    port: int32
    kind: string
    """
    _check_names(rows.names)
    return pa.schema([_plain_field(field, field.name) for field in rows])


def is_inexact_in_bounds(given: pa.DataType) -> bool:
    """Whether deltalake, which makes doubles of decimals, would write wrong bounds of such a column.

    >>> is_inexact_in_bounds(pa.decimal128(15, 2)), is_inexact_in_bounds(pa.decimal128(16, 2))
    (False, True)
    """
    return bool(is_type.is_decimal(given) and given.precision > EXACT_DIGITS)


def file_schema(rows: pa.Schema, table: pa.Schema) -> pa.Schema:
    """The columns of a table that rows have, in the table's order and with its types.

    >>> table = pa.schema([("n", pa.int64()), ("text", pa.string())])
    >>> file_schema(pa.schema([("n", pa.int32())]), table)
    n: int64
    >>> file_schema(pa.schema([("n", pa.string())]), table)
    Traceback (most recent call last):
    lakestate.errors.InvalidInputError: a column does not fit into the table: n; found string; ...
    """
    return pa.schema(_file_fields(rows, table, ""))


def new_columns(rows: pa.Schema, table: pa.Schema) -> pa.Schema:
    """The columns that only rows have, as a table would get them: each may be null."""
    fields = [field for field in rows if field.name not in table.names]
    known = {name.lower(): name for name in table.names}
    for field in fields:
        if field.name.lower() in known:
            raise InvalidInputError(
                "a column differs from one of the table only in case",
                object_name=field.name,
                found=f"{known[field.name.lower()]} in the table",
                action="rename it before the sink",
            )
    return storable_schema(pa.schema([field.with_nullable(True) for field in fields]))


def leaf_types(schema: pa.Schema) -> dict[str, str]:
    """The type of each leaf column, by its path in a Parquet file.

    >>> leaf_types(pa.schema([("tags", pa.list_(pa.string())), ("s", pa.struct([("n", pa.int32())]))]))
    {'tags.list.element': 'string', 's.n': 'int32'}
    """
    return {
        path: str(_text_type(given)) for field in schema for path, given in _leaves(field.name, field.type)
    }


def _leaves(path: str, given: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    if is_type.is_struct(given):
        for field in given:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif is_type.is_map(given):
        yield from _leaves(f"{path}.key_value.key", given.key_type)
        yield from _leaves(f"{path}.key_value.value", given.item_type)
    elif is_type.is_list(given) or is_type.is_large_list(given):
        yield from _leaves(f"{path}.list.element", given.value_type)
    else:
        yield path, given


def _text_type(given: pa.DataType) -> pa.DataType:
    """Text and bytes with short offsets: those of rows do not matter to a file."""
    if is_type.is_large_string(given):
        return pa.string()
    return pa.binary() if is_type.is_large_binary(given) else given


def _file_fields(
    rows: pa.Schema | pa.StructType, table: pa.Schema | pa.StructType, path: str
) -> list[pa.Field]:
    names = [field.name for field in table]
    found = {field.name: field for field in rows}
    for name in found:
        if name not in names:
            raise _unknown_column_error(f"{path}{name}", name, names)
    fields = []
    for field in table:
        if field.name in found:
            inner = _file_type(found[field.name].type, field.type, f"{path}{field.name}")
            fields.append(field.with_type(inner).remove_metadata())
        elif not field.nullable:
            raise InvalidInputError(
                "rows lack a column that cannot be null in the table",
                object_name=f"{path}{field.name}",
                expected=field.type,
                action="add it before the sink, or let it be null in the table",
            )
        elif path:
            # A struct in a file has all fields of the table's: rows leave null in those they lack.
            fields.append(field.remove_metadata())
    return fields


def _file_type(rows: pa.DataType, table: pa.DataType, path: str) -> pa.DataType:
    plain = STORABLE.of(rows, path)
    if is_type.is_struct(table) and is_type.is_struct(plain):
        return pa.struct(_file_fields(plain, table, f"{path}."))
    if is_type.is_list(table) and (is_type.is_list(plain) or is_type.is_large_list(plain)):
        element = table.value_field
        element = element.with_type(_file_type(plain.value_type, element.type, f"{path}.element"))
        element = element.with_name("element").remove_metadata()
        return pa.large_list(element) if is_type.is_large_list(plain) else pa.list_(element)
    if is_type.is_map(table) and is_type.is_map(plain):
        key, item = table.key_field, table.item_field
        return pa.map_(
            key.with_type(_file_type(plain.key_type, key.type, f"{path}.key")).remove_metadata(),
            item.with_type(_file_type(plain.item_type, item.type, f"{path}.value")).remove_metadata(),
        )
    if not _fits(plain, table):
        raise InvalidInputError(
            "a column does not fit into the table",
            object_name=path,
            found=rows,
            expected=table,
            action="cast it before the sink, or write to another table",
        )
    return plain if is_type.is_large_string(plain) or is_type.is_large_binary(plain) else table


def _plain_field(field: pa.Field, path: str) -> pa.Field:
    """A field of a new table: without offsets, which only matter to rows."""
    return field.with_type(_plain_type(STORABLE.of(field.type, path))).remove_metadata()


def _plain_type(given: pa.DataType) -> pa.DataType:
    if is_type.is_struct(given):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in given])
    if is_type.is_map(given):
        key, item = given.key_field, given.item_field
        return pa.map_(key.with_type(_plain_type(key.type)), item.with_type(_plain_type(item.type)))
    if is_type.is_list(given) or is_type.is_large_list(given):
        element = given.value_field.with_name("element")
        return pa.list_(element.with_type(_plain_type(element.type)))
    return _text_type(given)


def _storable_plain(given: pa.DataType) -> pa.DataType | None:
    """The type for whole numbers, text and bytes. Text keeps the offsets that rows have."""
    return given if given in _INTEGERS else _UNSIGNED.get(given) or _storable_bytes(given)


def _storable_bytes(given: pa.DataType) -> pa.DataType | None:
    if is_type.is_large_string(given) or is_type.is_large_binary(given):
        return given
    if is_type.is_string(given) or is_type.is_string_view(given):
        return pa.string()
    if is_type.is_binary(given) or is_type.is_binary_view(given) or is_type.is_fixed_size_binary(given):
        return pa.binary()
    return None


def _fits(rows: pa.DataType, table: pa.DataType) -> bool:
    rows = _text_type(rows)
    if rows == table or (rows, table) == (pa.float32(), pa.float64()):
        return True
    if rows in _INTEGERS and table in _INTEGERS:
        return bool(rows.bit_width < table.bit_width)
    if is_type.is_decimal(table) and is_type.is_decimal(rows):
        return bool(table.scale == rows.scale and table.precision >= rows.precision)
    return False


def _check_names(names: Sequence[str], path: str = "") -> None:
    seen: dict[str, str] = {}
    for name in names:
        if not name or any(char in INVALID_NAME_CHARS for char in name):
            raise InvalidInputError(
                "not the name of a column in a Delta table",
                object_name=f"{path}{name}",
                expected=f"a name without any of {INVALID_NAME_CHARS!r}",
                action="rename it before the sink",
            )
        if name.lower() in seen:
            raise InvalidInputError(
                "two columns of a Delta table differ only in case",
                object_name=path.removesuffix(".") or None,
                found=f"{seen[name.lower()]}, {name}",
                action="rename one before the sink",
            )
        seen[name.lower()] = name


def _unknown_column_error(path: str, name: str, names: list[str]) -> InvalidInputError:
    add = "add it to the table" if "." in path else "pass evolve=True to add it to the table"
    return InvalidInputError(
        "the table lacks a column of the rows",
        object_name=path,
        expected=", ".join(names),
        action=did_you_mean(name, names) or f"{add}, or drop it before the sink",
    )


STORABLE = StorableTypes("a Delta table", _storable_plain, _check_names)
