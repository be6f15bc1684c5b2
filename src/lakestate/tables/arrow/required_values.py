"""Values that a schema requires: a missing one is reported with its path before a file holds it.

Arrow's casts do not look into lists and maps. Parquet does, but only when a row group ends: the epoch
may be published by then, and the file could never be finished. Both also refuse nulls that are hidden
below a struct that is itself null; these are replaced. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_type

from lakestate.errors import InvalidInputError


def require_values(column: pa.Array, field: pa.Field, what: str, path: str | None = None) -> pa.Array:
    """The column in the type of a field. The types may differ only in what they require.

    >>> whole = pa.field("tags", pa.list_(pa.field("element", pa.string(), nullable=False)))
    >>> require_values(pa.array([["a"], None]), whole, "write").type
    ListType(list<element: string not null>)
    >>> require_values(pa.array([["a", None]]), whole, "write")
    Traceback (most recent call last):
    lakestate.errors.InvalidInputError: write: a required column has no value: tags.element; ...
    """
    path = path or field.name
    if not field.nullable and column.null_count:
        raise InvalidInputError(
            f"{what}: a required column has no value",
            object_name=path,
            found=f"{column.null_count} nulls in {len(column)} rows",
            expected=f"{field.type} not null",
            action="fill it in first, or make it optional",
        )
    if not is_type.is_nested(field.type):
        return column
    if _requires_values(field.type) and _has_gaps(column, field.type):
        return _fill_gaps(column, field.type, what, path)
    return column if _is_exactly(column.type, field.type) else column.cast(field.type)


def optional_type(given: pa.DataType) -> pa.DataType:
    """The type with nothing required, except keys of maps, which Arrow requires.

    >>> optional_type(pa.struct([pa.field("n", pa.int8(), nullable=False)]))
    StructType(struct<n: int8>)
    """
    if is_type.is_struct(given):
        return pa.struct([_optional_field(field) for field in given])
    if is_type.is_map(given):
        key = given.key_field.with_type(optional_type(given.key_type))
        return pa.map_(key, _optional_field(given.item_field))
    if _is_list(given):
        made = pa.large_list if is_type.is_large_list(given) else pa.list_
        return made(_optional_field(given.value_field))
    return given


def _optional_field(field: pa.Field) -> pa.Field:
    return field.with_nullable(True).with_type(optional_type(field.type))


def _is_list(given: pa.DataType) -> bool:
    return bool(is_type.is_list(given) or is_type.is_large_list(given))


def _is_exactly(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether types require the same. Arrow considers maps equal even if only one requires values; if an
    array and its schema differ in that, the Parquet writer may crash.
    """
    pairs = zip(_inner_fields(given), _inner_fields(wanted), strict=False)
    return bool(given.equals(wanted)) and all(
        one.nullable == other.nullable and _is_exactly(one.type, other.type) for one, other in pairs
    )


def _inner_fields(given: pa.DataType) -> list[pa.Field]:
    if is_type.is_struct(given):
        return list(given)
    if is_type.is_map(given):
        return [given.key_field, given.item_field]
    return [given.value_field] if _is_list(given) else []


def _requires_values(of_type: pa.DataType) -> bool:
    """Whether something inside a type is required."""
    return any(not field.nullable or _requires_values(field.type) for field in _inner_fields(of_type))


def _has_gaps(array: pa.Array, of_type: pa.DataType) -> bool:
    """Whether something required below is null, hidden or not. Copies nothing."""
    return any(
        (not field.nullable and inner.null_count > 0) or _has_gaps(inner, field.type)
        for inner, field in _inner(array, of_type)
    )


def _inner(array: pa.Array, of_type: pa.DataType) -> Iterator[tuple[pa.Array, pa.Field]]:
    if is_type.is_struct(of_type):
        yield from ((array.field(number), field) for number, field in enumerate(of_type))
    elif is_type.is_map(of_type):
        yield array.keys, of_type.key_field
        yield array.items, of_type.item_field
    elif _is_list(of_type):
        yield array.values, of_type.value_field


def _fill_gaps(array: pa.Array, of_type: pa.DataType, what: str, path: str) -> pa.Array:
    """The array, rebuilt without what is hidden."""
    nulls = array.is_null() if array.null_count else None
    if is_type.is_struct(of_type):
        fields = list(of_type)
        columns = [
            require_values(column, field, what, f"{path}.{field.name}")
            for column, field in zip(_fill_null_structs(array).flatten(), fields, strict=True)
        ]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=nulls)
    if is_type.is_map(of_type):
        entry = pa.struct([array.type.key_field, array.type.item_field])
        entries = array.cast(pa.list_(entry))
        keys, items = entries.flatten().flatten()
        keys = require_values(keys, of_type.key_field, what, f"{path}.key")
        items = require_values(items, of_type.item_field, what, f"{path}.value")
        return pa.MapArray.from_arrays(_offsets(entries), keys, items, type=of_type, mask=nulls)
    # This leaves out elements that null lists may still refer to.
    elements = require_values(array.flatten(), of_type.value_field, what, f"{path}.element")
    made = pa.LargeListArray if is_type.is_large_list(of_type) else pa.ListArray
    return made.from_arrays(_offsets(array), elements, type=of_type, mask=nulls)


def _offsets(lists: pa.Array) -> npt.NDArray[Any]:
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    return np.concatenate([np.zeros(1, lengths.dtype), np.cumsum(lengths, dtype=lengths.dtype)])


def _fill_null_structs(structs: pa.StructArray) -> pa.StructArray:
    """The structs, with a copy of another one in place of each null, so that no field is hidden."""
    seen = structs.is_valid().to_numpy(zero_copy_only=False)
    if seen.all():
        return structs
    if not seen.any():
        return _placeholder_values(structs.type, len(structs))
    return structs.take(pa.array(np.where(seen, np.arange(len(seen)), seen.argmax())))


def _placeholder_values(of_type: pa.DataType, count: int) -> pa.Array:
    """Arbitrary values of a type."""
    if isinstance(of_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(of_type, _placeholder_values(of_type.storage_type, count))
    if is_type.is_struct(of_type):
        columns = [_placeholder_values(field.type, count) for field in of_type]
        return pa.StructArray.from_arrays(columns, fields=list(of_type))
    none = np.zeros(count + 1, np.int64 if is_type.is_large_list(of_type) else np.int32)
    if is_type.is_map(of_type):
        inner = (pa.nulls(0, of_type.key_type), pa.nulls(0, of_type.item_type))
        return pa.MapArray.from_arrays(none, *inner, type=of_type)
    if _is_list(of_type):
        made = pa.LargeListArray if is_type.is_large_list(of_type) else pa.ListArray
        return made.from_arrays(none, pa.nulls(0, of_type.value_type), type=of_type)
    # Arrow stores an empty value below a null struct.
    one = pa.array([None], pa.struct([pa.field("value", of_type)])).field(0)
    return one.take(pa.array(none[:count]))
