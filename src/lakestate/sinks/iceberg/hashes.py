"""Murmur3 as Iceberg buckets need it: 32 bits, seed 0, for whole columns at once. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint32]

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def hash_integers(values: npt.NDArray[np.int64]) -> Hashes:
    """The hash of each number, as a 64-bit integer.

    >>> hash_integers(np.array([34]))
    array([2017239379], dtype=uint32)
    """
    bits = values.view(np.uint64)
    hashes = np.zeros(len(values), np.uint32)
    hashes = _mix(hashes, bits.astype(np.uint32))
    hashes = _mix(hashes, (bits >> np.uint64(32)).astype(np.uint32))
    return _finalise(hashes, np.full(len(values), 8, np.uint32))


def hash_bytes(column: pa.Array) -> Hashes:
    """The hash of each text or byte string. Nulls have an arbitrary one.

    >>> hash_bytes(pa.array(["iceberg"]))
    array([1210000089], dtype=uint32)
    """
    starts, lengths, data = _extents(column)
    hashes = np.zeros(len(column), np.uint32)
    blocks = lengths // 4
    for number in range(int(blocks.max(initial=0))):
        rows = np.flatnonzero(blocks > number)
        hashes[rows] = _mix(hashes[rows], _word(data, starts[rows] + 4 * number, 4))
    tails = lengths % 4
    for size in (1, 2, 3):
        rows = np.flatnonzero(tails == size)
        hashes[rows] ^= _scramble(_word(data, starts[rows] + 4 * blocks[rows], size))
    return _finalise(hashes, lengths.astype(np.uint32))


def _extents(
    column: pa.Array,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Where each value begins, how long it is, and the bytes of all."""
    count, first = len(column), column.offset
    buffers = column.buffers()
    data = np.frombuffer(buffers[-1] or b"", np.uint8)
    if pa.types.is_fixed_size_binary(column.type):
        width = column.type.byte_width
        starts = np.arange(first, first + count, dtype=np.int64) * width
        return starts, np.full(count, width, np.int64), data
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    if not count:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), data
    stored = np.frombuffer(buffers[1], np.int64 if wide else np.int32)[first : first + count + 1]
    offsets: npt.NDArray[np.int64] = stored.astype(np.int64)
    return offsets[:-1], np.diff(offsets), data


def _word(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], size: int) -> Hashes:
    word = np.zeros(len(starts), np.uint32)
    for number in range(size):
        word |= data[starts + number].astype(np.uint32) << np.uint32(8 * number)
    return word


def _rotate(values: Hashes, by: int) -> Hashes:
    return (values << np.uint32(by)) | (values >> np.uint32(32 - by))


def _scramble(word: Hashes) -> Hashes:
    return _rotate(word * _C1, 15) * _C2


def _mix(hashes: Hashes, word: Hashes) -> Hashes:
    return _rotate(hashes ^ _scramble(word), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finalise(hashes: Hashes, lengths: Hashes) -> Hashes:
    hashes = hashes ^ lengths
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))
