"""Arrow arrays, sliced or not, as NumPy arrays over the same memory.

Null slots may hold any value. Code that reads buffers must ask the array which rows are null.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def fixed_width_values(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The values of an array of fixed width, read as `dtype`; no copy.

    >>> fixed_width_values(pa.array([1, 2, 3]).slice(1), np.int64)
    array([2, 3])
    """
    return _buffer_values(array.buffers()[1], dtype, array.offset, len(array))


def value_offsets(array: pa.Array) -> npt.NDArray[np.signedinteger[Any]]:
    """The offset at which each value of a string, binary or list array begins, and the end of the last.

    >>> value_offsets(pa.array(["a", "bc", ""]).slice(1))
    array([1, 3, 3], dtype=int32)
    """
    dtype = np.int64 if array.type.id in _WITH_LONG_OFFSETS else np.int32
    if len(array) == 0:
        # Arrow allows an empty array to have no offsets at all.
        return np.zeros(1, dtype=dtype)
    return _buffer_values(array.buffers()[1], dtype, array.offset, len(array) + 1)


def value_bytes(array: pa.Array) -> npt.NDArray[np.uint8]:
    """All bytes of a string or binary array, counted from offset 0; no copy.

    >>> bytes(value_bytes(pa.array(["a", "bc", ""]).slice(1)))
    b'abc'
    """
    buffer = array.buffers()[2]
    return np.frombuffer(buffer, np.uint8) if buffer is not None else np.empty(0, np.uint8)


def null_rows(array: pa.Array) -> npt.NDArray[np.intp]:
    """The positions of the nulls.

    >>> null_rows(pa.array(["a", None, "b", None]))
    array([1, 3])
    """
    if array.null_count == 0:
        return np.empty(0, dtype=np.intp)
    return np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))


def _buffer_values(
    buffer: pa.Buffer | None, dtype: npt.DTypeLike, offset: int, count: int
) -> npt.NDArray[Any]:
    if count == 0 or buffer is None:
        return np.empty(0, dtype=dtype)
    return np.frombuffer(buffer, dtype, count=offset + count)[offset:]


_WITH_LONG_OFFSETS = {pa.large_string().id, pa.large_binary().id, pa.lib.Type_LARGE_LIST}
