"""Whether rows have equal keys. Vectorised; nulls equal nulls, as with SQL's `<=>`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def same_keys(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> np.ndarray:
    """For each row, whether all key columns agree.

    >>> same_keys([pa.array([1, None, 3])], [pa.array([1, None, 4])]).tolist()
    [True, True, False]
    """
    agreed = _same_column(left[0], right[0])
    for one, other in zip(left[1:], right[1:], strict=True):
        agreed &= _same_column(one, other)
    return agreed


def _same_column(left: pa.Array, right: pa.Array) -> np.ndarray:
    if pa.types.is_floating(left.type):
        left, right = comparable_bits(left), comparable_bits(right)
    equal = pc.equal(left, right)
    if equal.null_count:
        equal = pc.fill_null(equal, pc.and_(left.is_null(), right.is_null()))
    flags: np.ndarray = equal.to_numpy(zero_copy_only=False)
    return flags


def comparable_bits(column: pa.Array) -> pa.Array:
    """Floats as integers in which all NaN are equal and both zeros are equal, as in Spark's grouping."""
    width = column.type.bit_width
    floats = column.fill_null(0).to_numpy(zero_copy_only=False) + 0.0
    floats = np.where(np.isnan(floats), np.nan, floats).astype(f"f{width // 8}")
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(floats.view(f"i{width // 8}"), mask=mask)
