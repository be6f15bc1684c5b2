"""Casting a column to a declared type without loss.

Arrow's safe cast refuses less than its name suggests. It drops struct fields that the target lacks and
fills missing ones with null. It turns a number that is too large for a float into infinity and one that
is too small into zero. It rounds decimals and text to floats, decimals not even to the nearest one. It
truncates the time of day and the digits of a float, and turns every number but 0 into true.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError
from lakestate.tables.arrow.value_limits import is_text

_UNFIT = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)
_DIGITS = {16: 1e-3, 32: 1e-6, 64: 1e-12}
"""The relative rounding error of a float, by its number of bits."""
_SURE_DIGITS = {16: 3, 32: 6, 64: 15}
"""How many digits of a decimal a float keeps if it is not close to zero, by its number of bits."""


def cast_losslessly(column: pa.Array, field: pa.Field, what: str) -> pa.Array:
    """The column in the type of a field.

    Raises InvalidInputError naming the place inside the column where something would be lost. The one
    loss that is allowed is that of a float's last digits in a narrower float.
    """
    _check_types(column.type, field.type, field.name, what)
    try:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        kept = column.cast(_intermediate_type(column.type, field.type)).cast(field.type, safe=True)
        _check_values(column, kept, field.name, what)
        return kept
    except _UNFIT as cause:
        raise InvalidInputError(
            f"{what}: a column has another type",
            object_name=field.name,
            found=str(column.type),
            expected=str(field.type),
            action=f"cast it first ({str(cause)[:120]})",
        ) from cause


def cast_chunks_losslessly(column: pa.ChunkedArray, field: pa.Field, what: str) -> pa.ChunkedArray:
    """A column in chunks in the type of a field; see `cast_losslessly`."""
    chunks = [cast_losslessly(chunk, field, what) for chunk in column.chunks]
    return pa.chunked_array(chunks, field.type)


def _intermediate_type(found: pa.DataType, expected: pa.DataType) -> pa.DataType:
    """The given type, with text in place of decimals that become floats: Arrow rounds only text correctly."""
    if pa.types.is_dictionary(found):
        return _intermediate_type(found.value_type, expected)
    if pa.types.is_decimal(found) and pa.types.is_floating(expected):
        return pa.string()
    if pa.types.is_struct(found) and pa.types.is_struct(expected):
        types = {
            one: _intermediate_type(found[one].type, expected[other].type)
            for one, other in _field_pairs(found, expected)
        }
        return pa.struct([field.with_type(types[place]) for place, field in enumerate(found)])
    if pa.types.is_map(found) and pa.types.is_map(expected):
        return pa.map_(
            _intermediate_type(found.key_type, expected.key_type),
            _intermediate_type(found.item_type, expected.item_type),
        )
    if _has_elements(found) and _has_elements(expected):
        element = _element_type(found)
        read_as = _intermediate_type(element, _element_type(expected))
        return found if read_as == element else pa.large_list(read_as)
    return found


def _check_types(found: pa.DataType, expected: pa.DataType, path: str, what: str) -> None:
    """Refuse structs with other fields, at any depth."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if found == expected:
        return
    if _is_list_view(found):
        # Arrow casts them to arrays with too few offsets.
        raise InvalidInputError(
            f"{what}: a column has another type",
            object_name=path,
            found=str(found),
            expected=str(expected),
            action="give lists, not views of lists",
        )
    if pa.types.is_struct(found) and pa.types.is_struct(expected):
        names, declared = [field.name for field in found], [field.name for field in expected]
        if sorted(names) != sorted(declared):
            raise InvalidInputError(
                f"{what}: a struct has other fields",
                object_name=path,
                found=", ".join(names) or "no field",
                expected=", ".join(declared),
                action="give every field by its name, including fields that are null",
            )
        for one, other in _field_pairs(found, expected):
            _check_types(found[one].type, expected[other].type, f"{path}.{expected[other].name}", what)
    elif _has_elements(found) and _has_elements(expected):
        _check_types(_element_type(found), _element_type(expected), _element_path(path, expected), what)


def _check_values(given: pa.Array, kept: pa.Array, path: str, what: str) -> None:
    """Refuse values that the cast has changed, at any depth."""
    if pa.types.is_dictionary(given.type):
        given = given.dictionary_decode()
    if given.type == kept.type or given.null_count == len(given):
        return
    if pa.types.is_struct(kept.type):
        for one, other in _field_pairs(given.type, kept.type):
            inner = f"{path}.{kept.type[other].name}"
            _check_values(pc.struct_field(given, [one]), pc.struct_field(kept, [other]), inner, what)
    elif _has_elements(kept.type):
        _check_values(_elements(given), _elements(kept), _element_path(path, kept.type), what)
    elif (lost := _changed_rows(given, kept)) is not None and pc.any(lost).as_py():
        first = given.filter(lost)[0].as_py()
        raise InvalidInputError(
            f"{what}: a value does not fit its column",
            object_name=path,
            found=f"{first!s:.100} of type {given.type}",
            expected=str(kept.type),
            action="round or convert it explicitly first",
        )


def _changed_rows(given: pa.Array, kept: pa.Array) -> pa.Array | None:
    """Which values changed; None if Arrow's own cast refuses those."""
    if pa.types.is_floating(kept.type):
        return _rows_changed_by_float(given, kept)
    if pa.types.is_boolean(kept.type) and (
        pa.types.is_integer(given.type) or pa.types.is_floating(given.type)
    ):
        return pc.not_equal(kept.cast(given.type), given)
    if pa.types.is_date(kept.type) and pa.types.is_timestamp(given.type):
        local = given if given.type.tz is None else pc.local_timestamp(given)
        return pc.not_equal(kept.cast(local.type), local)
    if pa.types.is_date32(kept.type) and pa.types.is_date64(given.type):
        return pc.not_equal(kept.cast(given.type).cast(pa.int64()), given.cast(pa.int64()))
    if pa.types.is_time(kept.type) and pa.types.is_timestamp(given.type):
        # A time of day has no date to keep.
        return given.is_valid()
    if pa.types.is_decimal(kept.type) and pa.types.is_floating(given.type):
        return _rows_changed_by_decimal(given, kept)
    return None


def _rows_changed_by_float(given: pa.Array, kept: pa.Array) -> pa.Array | None:
    if pa.types.is_floating(given.type):
        if given.type.bit_width < kept.type.bit_width:
            return None
        too_large = pc.and_not(pc.is_inf(kept), pc.is_inf(given))
        too_small = pc.and_(pc.equal(kept, 0), pc.not_equal(given, 0))
        return pc.or_(too_large, too_small)
    if not (pa.types.is_decimal(given.type) or _is_text_like(given.type)):
        return None
    text = given.cast(pa.string())
    # Comparing digits costs much more than casting. A short number loses digits only close to zero.
    short = pc.less_equal(pc.binary_length(pc.ascii_trim(text, "0")), _SURE_DIGITS[kept.type.bit_width])
    tiny = float(np.finfo(kept.type.to_pandas_dtype()).tiny)
    ordinary = pc.and_(pc.is_finite(kept), pc.greater_equal(pc.abs(kept), tiny))
    doubtful = pc.invert(pc.and_(short, ordinary))
    differ = pc.not_equal(_digits(text.filter(doubtful)), _digits(kept.filter(doubtful).cast(pa.string())))
    return pc.replace_with_mask(doubtful, doubtful, differ)


def _digits(numbers: pa.Array) -> pa.Array:
    """The digits of numbers in text, without leading and trailing zeros.

    A float is printed with the fewest digits that identify it. If those are the digits of the number
    that it was rounded from, it stands for that number: it cannot be ten times as large.
    """
    mantissas = pc.replace_substring_regex(pc.ascii_lower(numbers), "e.*|inity", "")
    return pc.ascii_trim(pc.replace_substring(mantissas, ".", ""), "+-0")


def _rows_changed_by_decimal(given: pa.Array, kept: pa.Array) -> pa.Array:
    """Decimals that differ from the float by more than the float's own rounding."""
    before = given.to_numpy(zero_copy_only=False)
    after = kept.cast(given.type).to_numpy(zero_copy_only=False)
    noise = 1e-6 * 10.0**-kept.type.scale
    return pa.array(
        ~np.isclose(after, before, rtol=_DIGITS[given.type.bit_width], atol=noise, equal_nan=True)
    )


def _field_pairs(found: pa.StructType, expected: pa.StructType) -> Iterator[tuple[int, int]]:
    """The positions of fields with the same name in two structs with the same names."""
    return zip(_places_by_name(found), _places_by_name(expected), strict=True)


def _places_by_name(type_: pa.StructType) -> list[int]:
    return sorted(range(type_.num_fields), key=lambda place: str(type_[place].name))


def _is_text_like(type_: pa.DataType) -> bool:
    return is_text(type_) or bool(pa.types.is_string_view(type_) or pa.types.is_binary_view(type_))


def _is_list_view(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_))


def _has_elements(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
        or pa.types.is_map(type_)
    )


def _element_type(type_: pa.DataType) -> pa.DataType:
    """The type of a list's elements; for a map, its entries as structs."""
    if pa.types.is_map(type_):
        return pa.struct([("key", type_.key_type), ("value", type_.item_type)])
    return type_.value_type


def _element_path(path: str, type_: pa.DataType) -> str:
    return path if pa.types.is_map(type_) else f"{path}.element"


def _elements(array: pa.Array) -> pa.Array:
    """The elements of all lists or maps in order; null ones have none."""
    if pa.types.is_map(array.type):
        array = array.cast(pa.list_(_element_type(array.type)))
    return array.flatten()
