"""How large a single key or value may be, checked before anything of it is stored.

Parquet counts the bytes of a page, and Arrow those of a column of text, with 31 bits; what is larger
would fail inside of them, at a checkpoint, when the rows cannot be refused any more.
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
"""1 GiB, and what an encoding adds to it."""

LONG_BYTES = 64 << 10
"""Values from here on are stored without statistics: Parquet would keep several copies of them."""


def longest_bytes(column: pa.ChunkedArray | pa.Array) -> int:
    """The length of the longest text, bytes or nested value of a column; 0 of a column of other types.

    A nested value has the length of all that is in it: the pages of Parquet begin with whole rows.

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
    """How many bytes lie before each row, and before the end: of text and of numbers, at any depth.

    What is null counts with what it takes in memory.
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
    """Where rows are cut so that no piece has more bytes, unless it is one row. With both ends.

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
        action="keep large values as objects of their own, and their names here",
    )


def is_text(type_: pa.DataType) -> bool:
    """True for text and bytes, however they are counted."""
    return bool(
        pa.types.is_string(type_)
        or pa.types.is_binary(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_large_binary(type_)
    )
