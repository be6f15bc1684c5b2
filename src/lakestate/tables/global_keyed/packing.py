"""Many encoded items as Arrow arrays of bytes.

Items of a plain type are encoded in one call, as one MessagePack array, and then cut apart: where each
begins follows from its type and length. That takes half of the time of encoding them one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestate.tables.arrow.buffers import value_offsets
from lakestate.tables.arrow.value_limits import VALUE_BYTES_MAX, cut_places

Sizes = npt.NDArray[np.signedinteger[Any]]

_encode_all = msgspec.msgpack.Encoder().encode


class TooLongError(Exception):
    """An item is too long to be stored."""

    def __init__(self, place: int, size_bytes: int) -> None:
        super().__init__(place, size_bytes)
        self.place = place
        self.size_bytes = size_bytes


def pack_bytes(items: Sequence[bytes | None]) -> pa.ChunkedArray:
    """Encoded items as one column, in chunks that are small enough for Arrow's offsets."""
    try:
        array = pa.array(items, pa.binary())
        if array.nbytes <= VALUE_BYTES_MAX:
            return pa.chunked_array([array])
    except pa.ArrowCapacityError:
        pass
    lengths = [0 if item is None else len(item) for item in items]
    if max(lengths) > VALUE_BYTES_MAX:
        raise TooLongError(lengths.index(max(lengths)), max(lengths))
    before = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    places = pairwise(cut_places(before, VALUE_BYTES_MAX))
    return pa.chunked_array([pa.array(items[start:stop], pa.binary()) for start, stop in places])


def pack_plain(items: Sequence[Any], class_: type) -> pa.ChunkedArray | None:
    """Items that are all exactly of one plain class, encoded. None if they must be encoded one by one.

    >>> pack_plain(["a", "bc"], str).to_pylist() == [_encode_all("a"), _encode_all("bc")]
    True
    """
    if class_ is str and (packed := _pack_ascii(items)) is not None:
        return packed
    measure = _SIZES.get(class_)
    sizes = None if measure is None else measure(items)
    if sizes is None or int(sizes.sum()) > VALUE_BYTES_MAX:
        return None
    data = _encode_all(items)
    offsets = np.zeros(len(items) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    head_bytes = len(data) - int(offsets[-1])
    if head_bytes not in _HEAD_BYTES:
        # Another version of the encoder chooses other forms.
        return None
    content = pa.py_buffer(data).slice(head_bytes)
    array = pa.Array.from_buffers(pa.binary(), len(items), [None, pa.py_buffer(offsets), content], 0)
    return pa.chunked_array([array])


def _pack_ascii(items: Sequence[str]) -> pa.ChunkedArray | None:
    """Texts of ASCII characters; None if there are others, or a text is long.

    What is written before each text begins with a byte above 127, and all other bytes are below: if there
    are as many as texts, they show where each begins. That takes half of the time of asking for lengths.
    """
    data = pa.py_buffer(_encode_all(items))
    content = data.slice(1 if len(items) < 1 << 4 else 3 if len(items) < 1 << 16 else 5)
    if content.size > VALUE_BYTES_MAX:
        return None
    view = np.frombuffer(content, np.uint8)
    pieces = range(0, len(view), _PIECE_BYTES)
    found = [np.flatnonzero(view[start : start + _PIECE_BYTES] > 127) + start for start in pieces]
    offsets = np.concatenate([*found, [len(view)]]).astype(np.int32)
    if len(offsets) != len(items) + 1:
        return None
    buffers = [None, pa.py_buffer(offsets), content]
    return pa.chunked_array([pa.Array.from_buffers(pa.binary(), len(items), buffers, 0)])


_PIECE_BYTES = 1 << 18
"""Bytes that are searched at a time: they stay in the processor's cache."""
# What a MessagePack array begins with: its length.
_HEAD_BYTES = (1, 3, 5)
_INT_LIMITS = np.array([-(2**31), -(2**15), -(2**7), -(2**5), 2**7, 2**8, 2**16, 2**32], dtype=np.int64)
_INT_BYTES = np.array([9, 5, 3, 2, 1, 2, 3, 5, 9], dtype=np.int64)


def _text_sizes(items: Sequence[str]) -> Sizes | None:
    lengths = _lengths(items, pa.string())
    if lengths is None:
        return None
    if lengths.max(initial=0) < 2**5:
        return lengths + 1
    return lengths + 1 + (lengths >= 2**5) + (lengths >= 2**8) + 2 * (lengths >= 2**16)


def _bytes_sizes(items: Sequence[bytes]) -> Sizes | None:
    lengths = _lengths(items, pa.binary())
    if lengths is None:
        return None
    return lengths + 2 + (lengths >= 2**8) + 2 * (lengths >= 2**16)


def _int_sizes(items: Sequence[int]) -> Sizes | None:
    try:
        numbers = np.fromiter(items, dtype=np.int64, count=len(items))
    except OverflowError:
        return None
    sizes: Sizes = _INT_BYTES[np.searchsorted(_INT_LIMITS, numbers, side="right")]
    return sizes


def _lengths(items: Sequence[Any], type_: pa.DataType) -> Sizes | None:
    try:
        array = pa.array(items, type_)
    except pa.ArrowCapacityError:
        return None
    return None if isinstance(array, pa.ChunkedArray) else np.diff(value_offsets(array))


_SIZES: dict[type, Callable[[Sequence[Any]], Sizes | None]] = {
    str: _text_sizes,
    bytes: _bytes_sizes,
    int: _int_sizes,
    float: lambda items: np.full(len(items), 9, dtype=np.int64),
    bool: lambda items: np.ones(len(items), dtype=np.int64),
}
