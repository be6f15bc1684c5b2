"""Columns as integers that sort as the values do, so that rows are sorted by NumPy in few passes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.tables.arrow.columns import whole_column

Codes: TypeAlias = "npt.NDArray[np.int64]"

_WORD_BITS = 63


def group_codes(columns: Iterable[pa.Array | pa.ChunkedArray]) -> list[Codes]:
    """Integers that are equal exactly where keys are equal, as in Spark: null equals null, NaN equals NaN."""
    found: list[Codes] = []
    for column in map(whole_column, columns):
        if is_integral(column.type):
            found += _with_null_flags(_integers(column), column, nulls_first=True)
            continue
        if pa.types.is_floating(column.type):
            column = _plain_floats(column)
        found.append(column.dictionary_encode(null_encoding="encode").indices.cast(pa.int64()).to_numpy())
    return found


def order_codes(column: pa.Array | pa.ChunkedArray, *, descending: bool, nulls_first: bool) -> list[Codes]:
    """Integers that sort like the values. NaN is larger than all numbers, as in Spark."""
    column = whole_column(column)
    values = _value_codes(column)
    # The complement reverses the order and, unlike a negation, cannot overflow.
    return _with_null_flags(~values if descending else values, column, nulls_first=nulls_first)


def pack_codes(codes: Sequence[Codes]) -> list[tuple[Codes, int]]:
    """Codes of several columns as few integers with the same order, each with its number of bits.

    One sort of 63 bits is several times faster than a sort for each column.
    """
    words: list[tuple[Codes, int]] = []
    for code in codes:
        low, high = int(code.min()), int(code.max())
        bits = (high - low).bit_length()
        if bits > _WORD_BITS:
            words.append((code, bits))
            continue
        based = code - low
        if words and words[-1][1] + bits <= _WORD_BITS:
            last, used = words[-1]
            words[-1] = ((last << bits) | based, used + bits)
        else:
            words.append((based, bits))
    return words


def is_sortable(type_: pa.DataType) -> bool:
    """Whether rows can be ordered by values of this type, as SQL does."""
    return not pa.types.is_nested(type_)


def is_integral(type_: pa.DataType) -> bool:
    """Whether the codes of values are the values themselves. A column without a type has only nulls."""
    checks = (pa.types.is_integer, pa.types.is_temporal, pa.types.is_boolean, pa.types.is_null)
    return any(check(type_) for check in checks)


def _value_codes(column: pa.Array) -> Codes:
    if is_integral(column.type):
        return _integers(column)
    if pa.types.is_floating(column.type):
        return _float_codes(column)
    if not is_sortable(column.type):
        # Maps and lists have no order in SQL. Their text gives them one that never changes.
        column = pa.array(
            [None if value is None else str(value) for value in column.to_pylist()], pa.string()
        )
    ranks: Codes = pc.rank(column, sort_keys="ascending", tiebreaker="dense").cast(pa.int64()).to_numpy()
    return ranks


def _integers(column: pa.Array) -> Codes:
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    values: Codes = column.cast(pa.int64()).fill_null(0).to_numpy()
    return values


def _plain_floats(column: pa.Array) -> pa.Array:
    """Floats with one NaN and one zero."""
    floats = column.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False) + 0.0
    floats = np.where(np.isnan(floats), np.nan, floats)
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(floats, mask=mask)


def _float_codes(column: pa.Array) -> Codes:
    bits = _plain_floats(column).fill_null(0).to_numpy(zero_copy_only=False).view(np.int64)
    # Negative floats have their bits in reverse order, apart from the sign.
    codes: Codes = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    return codes


def _with_null_flags(values: Codes, column: pa.Array, *, nulls_first: bool) -> list[Codes]:
    if not column.null_count:
        return [values]
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    flags = (~is_null if nulls_first else is_null).astype(np.int64)
    return [flags, np.where(is_null, np.int64(0), values)]
