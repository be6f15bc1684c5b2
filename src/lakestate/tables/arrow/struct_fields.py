"""Structs that have more or fewer fields than a type, at any depth, where that is allowed.

A cast that loses nothing refuses both; what may be left out, or is null where it is absent, is decided
by who calls these functions first. Values keep their types.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa


def select_struct_fields(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """The column without the fields of structs that a type does not have.

    >>> rows = pa.array([{"a": 1, "b": 2}])
    >>> select_struct_fields(rows, pa.struct([("a", pa.int32())])).to_pylist()
    [{'a': 1}]
    """
    return _cast(column, _type_with_selected_fields(column.type, type_))


def add_struct_fields(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """The column with null in the fields of structs that only the type has.

    >>> rows = pa.array([{"a": 1}])
    >>> add_struct_fields(rows, pa.struct([("a", pa.int32()), ("b", pa.string())])).to_pylist()
    [{'a': 1, 'b': None}]
    """
    return _cast(column, _type_with_added_fields(column.type, type_))


def _cast(column: pa.Array, type_: pa.DataType) -> pa.Array:
    return column if column.type == type_ else column.cast(type_)


def _type_with_selected_fields(found: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        shared = [field for field in found if wanted.get_field_index(field.name) >= 0]
        return pa.struct(
            [
                field.with_type(_type_with_selected_fields(field.type, wanted.field(field.name).type))
                for field in shared
            ]
        )
    return _elementwise(found, wanted, _type_with_selected_fields)


def _type_with_added_fields(found: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        fields = [
            field.with_type(_type_with_added_fields(field.type, wanted.field(field.name).type))
            if wanted.get_field_index(field.name) >= 0
            else field
            for field in found
        ]
        absent = [field for field in wanted if found.get_field_index(field.name) < 0]
        return pa.struct([*fields, *(field.with_nullable(True) for field in absent)])
    return _elementwise(found, wanted, _type_with_added_fields)


def _elementwise(
    found: pa.DataType, wanted: pa.DataType, of_element: Callable[[pa.DataType, pa.DataType], pa.DataType]
) -> pa.DataType:
    """A list or map whose elements have another type; other types as they are."""
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        return pa.map_(found.key_type, of_element(found.item_type, wanted.item_type))
    if _is_list(found) and _is_list(wanted):
        element = found.value_field.with_type(of_element(found.value_type, wanted.value_type))
        return pa.large_list(element) if pa.types.is_large_list(found) else pa.list_(element)
    return found


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))
