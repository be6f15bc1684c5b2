"""How large a single key or value may be, checked before it is stored.

Parquet counts the bytes of a page, and Arrow those of a text column, with 31 bits. A larger value would
fail inside them at the checkpoint, when it is too late to refuse the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError
from lakestate.tables.arrow.buffers import value_offsets

VALUE_BYTES_MAX = (1 << 30) + 64
"""1 GiB, plus what an encoding adds."""

LONG_BYTES = 64 << 10
"""Values of this size or more are stored without statistics, of which Parquet would keep several copies."""


def longest_bytes(column: pa.ChunkedArray | pa.Array) -> int:
    """The length of the longest text, bytes or nested value of a column; 0 for other types.

    The length of a nested value includes everything in it: Parquet's pages begin with whole rows.

    >>> longest_bytes(pa.array(["a", None, "abc"])), longest_bytes(pa.array([1, 2]))
    (3, 0)
    >>> longest_bytes(pa.array([["a", "bc"], None, ["de"]]))
    3
    """
    if is_text(column.type):
        return pc.max(pc.binary_length(column)).as_py() or 0
    if not pa.types.is_nested(column.type):
        return 0
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return max((int(np.diff(bytes_before(chunk)).max()) for chunk in chunks if len(chunk)), default=0)


def bytes_before(array: pa.Array) -> npt.NDArray[np.int64]:
    """The number of bytes of text and numbers before each row and before the end, at any depth.

    A null counts with the memory it takes.
    """
    if is_text(array.type):
        return value_offsets(array).astype(np.int64)
    if pa.types.is_struct(array.type):
        return _sum_bytes_before(array.flatten(), len(array))
    if not pa.types.is_nested(array.type):
        width: int = -(-array.type.bit_width // 8)
        return np.arange(len(array) + 1, dtype=np.int64) * width
    parts = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
    before: npt.NDArray[np.int64] = _sum_bytes_before(parts, len(parts[0]))[value_offsets(array)]
    return before


def cut_places(before: npt.NDArray[np.int64], bytes_max: int) -> list[int]:
    """Where to cut rows so that no piece has more bytes, except a single row. Includes both ends.

    >>> cut_places(np.array([0, 4, 8, 30, 31]), 10)
    [0, 2, 3, 4]
    """
    places, last = [0], len(before) - 1
    while places[-1] < last:
        start = places[-1]
        stop = int(np.searchsorted(before, before[start] + bytes_max, side="right")) - 1
        places.append(max(stop, start + 1))
    return places


def _sum_bytes_before(arrays: Sequence[pa.Array], row_count: int) -> npt.NDArray[np.int64]:
    return sum(map(bytes_before, arrays), start=np.zeros(row_count + 1, np.int64))


def check_value_sizes(column: pa.Array, name: str, what: str) -> None:
    """Refuse a column with a value that is too long to be stored."""
    if column.nbytes > VALUE_BYTES_MAX and (longest := longest_bytes(column)) > VALUE_BYTES_MAX:
        raise too_long_error(f"{what}: a value is too long", name, longest)


def too_long_error(summary: str, name: str, found_bytes: int) -> InvalidInputError:
    """The error for a value that is too long to be stored."""
    return InvalidInputError(
        summary,
        object_name=name,
        found=f"{found_bytes:,} bytes",
        expected=f"at most {VALUE_BYTES_MAX:,}",
        action="store large values as objects of their own, and their names here",
    )


def is_text(type_: pa.DataType) -> bool:
    """True for text and bytes, with offsets of any width."""
    return bool(
        pa.types.is_string(type_)
        or pa.types.is_binary(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_large_binary(type_)
    )
