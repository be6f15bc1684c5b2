"""XXH64 over many values at once, with a seed per value: the arithmetic behind routing keys.

NumPy in, NumPy out; knows neither Arrow nor Spark. Work proceeds block by block through small buffers
that stay in the processor's cache, which also bounds memory. Integers must wrap: arrays of `uint64` do
so silently, and seeds that are Python integers are masked explicitly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterator

U64: TypeAlias = npt.NDArray[np.uint64]
Indexes: TypeAlias = npt.NDArray[np.int64]
Offsets: TypeAlias = npt.NDArray[np.signedinteger]
# One seed for all values, or one for each.
Seeds: TypeAlias = int | U64

_MASK = 2**64 - 1
_PRIME_1 = 0x9E3779B185EBCA87
_PRIME_2 = 0xC2B2AE3D27D4EB4F
_PRIME_3 = 0x165667B19E3779F9
_PRIME_4 = 0x85EBCA77C2B2AE63
_PRIME_5 = 0x27D4EB2F165667C5
_P1, _P2, _P3, _P4, _P5 = (np.uint64(prime) for prime in (_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5))

# Measured: a third of the speed at 1,024 rows, where calls dominate, and for strings half of it
# at 262,144, where blocks leave the cache.
BLOCK_ROWS = 16_384
STRIPE_BYTES = 32
# From about this length one call of the C library per value is faster than gathering its words,
# and the number of NumPy steps stays bounded whatever the longest value is.
LONG_BYTES = 1024
# How far past the end of a value the words of its tail may reach.
SLACK_BYTES = 8


def hash_ints(values: npt.NDArray[np.uint32], seeds: Seeds) -> U64:
    """The hashes of 4-byte values.

    >>> hash_ints(np.ones(1, dtype=np.uint32), 42).tolist() == [xxhash.xxh64_intdigest(b"\\1\\0\\0\\0", 42)]
    True
    """
    hashes = np.empty(len(values), dtype=np.uint64)
    for block in _blocks(len(values)):
        hash_ = hashes[block]
        hash_[:] = _plus(seeds, block, _PRIME_5 + 4)
        _mix_int(hash_, values[block].astype(np.uint64))
        _finish(hash_)
    return hashes


def hash_longs(values: U64, seeds: Seeds) -> U64:
    """The hashes of 8-byte values.

    >>> hash_longs(np.zeros(1, dtype=np.uint64), 42).tolist() == [xxhash.xxh64_intdigest(bytes(8), 42)]
    True
    """
    hashes = np.empty(len(values), dtype=np.uint64)
    for block in _blocks(len(values)):
        hash_ = hashes[block]
        hash_[:] = _plus(seeds, block, _PRIME_5 + 8)
        _mix_word(hash_, values[block].copy())
        _finish(hash_)
    return hashes


def hash_bytes(data: npt.NDArray[np.uint8], starts: Offsets, lengths: Offsets, seeds: Seeds) -> U64:
    """The hashes of byte strings in `data`, which must extend `SLACK_BYTES` beyond each of them.

    >>> data = np.frombuffer(b"spark" + bytes(SLACK_BYTES), dtype=np.uint8)
    >>> hash_bytes(data, np.array([0]), np.array([5]), 42).tolist() == [xxhash.xxh64_intdigest(b"spark", 42)]
    True
    """
    # A word at every byte: overlapping and unaligned, so this is a view and costs nothing.
    words: U64 = np.ndarray((max(len(data) - 7, 0),), dtype="<u8", buffer=data, strides=(1,))
    hashes = np.empty(len(starts), dtype=np.uint64)
    for block in _blocks(len(starts)):
        seeds_here = seeds if isinstance(seeds, int) else seeds[block]
        hashes[block] = _hash_block(
            words, starts[block].astype(np.int64), lengths[block].astype(np.int64), seeds_here
        )
    for row in np.flatnonzero(lengths >= LONG_BYTES).tolist():
        value = data[starts[row] : starts[row] + lengths[row]].tobytes()
        hashes[row] = xxhash.xxh64_intdigest(value, seeds if isinstance(seeds, int) else int(seeds[row]))
    return hashes


def hash_few_bytes(data: npt.NDArray[np.uint8], starts: Offsets, lengths: Offsets, seeds: Seeds) -> U64:
    """The same for few values: one call of the C library for each. Reads nothing past a value.

    >>> data = np.frombuffer(b"a", dtype=np.uint8)
    >>> hash_few_bytes(data, np.array([0]), np.array([1]), 42).tolist() == [xxhash.xxh64_intdigest(b"a", 42)]
    True
    """
    content = memoryview(data.data)
    of_each = [seeds] * len(starts) if isinstance(seeds, int) else seeds.tolist()
    hashes = [
        xxhash.xxh64_intdigest(content[start : start + length], seed)
        for start, length, seed in zip(starts.tolist(), lengths.tolist(), of_each, strict=True)
    ]
    return np.array(hashes, dtype=np.uint64)


def _hash_block(words: U64, starts: Indexes, lengths: Indexes, seeds: Seeds) -> U64:
    hash_ = np.empty(len(starts), dtype=np.uint64)
    hash_[:] = _plus(seeds, slice(None), _PRIME_5)
    striped = np.flatnonzero((lengths >= STRIPE_BYTES) & (lengths < LONG_BYTES))
    if striped.size:
        of_striped = seeds if isinstance(seeds, int) else seeds[striped]
        hash_[striped] = _hash_stripes(words, starts[striped], lengths[striped], of_striped)
    hash_ += lengths.view(np.uint64)
    _mix_rest(hash_, words, starts + (lengths & -STRIPE_BYTES), lengths & (STRIPE_BYTES - 1))
    _finish(hash_)
    return hash_


def _mix_rest(hash_: U64, words: U64, starts: Indexes, lengths: Indexes) -> None:
    """Mix in what remains after whole stripes: fewer than 32 bytes of each value."""
    for position in range(0, STRIPE_BYTES - 8, 8):
        for rows, picked in _where(hash_, lengths >= position + 8):
            _mix_word(picked, words[starts[rows] + position])
    tails = words[starts + (lengths & -8)]
    for rows, picked in _where(hash_, (lengths & 4) != 0):
        _mix_int(picked, tails[rows] & np.uint64(0xFFFFFFFF))
    tails >>= ((lengths & 4) << 3).view(np.uint64)
    for position in range(3):
        for rows, picked in _where(hash_, (lengths & 3) > position):
            _mix_byte(picked, (tails[rows] >> np.uint64(8 * position)) & np.uint64(0xFF))


def _where(hash_: U64, mask: npt.NDArray[np.bool_]) -> Iterator[tuple[Indexes | slice, U64]]:
    """The rows of the mask and their hashes, written back after the caller has changed them.

    Selecting rows is faster than computing all and choosing, a branch that the processor cannot
    predict. Nothing is copied where the mask is all or nothing, as it is for values of equal length.
    """
    rows = np.flatnonzero(mask)
    if rows.size == hash_.size:
        yield slice(None), hash_
    elif rows.size:
        picked = hash_[rows]
        yield rows, picked
        hash_[rows] = picked


def _hash_stripes(words: U64, starts: Indexes, lengths: Indexes, seeds: Seeds) -> U64:
    # Longest first, so that the values that still have a stripe at each step are a prefix.
    order = np.argsort(-lengths, kind="stable")
    starts, stripes = starts[order], lengths[order] // STRIPE_BYTES
    lanes = _first_lanes(seeds if isinstance(seeds, int) else seeds[order], len(order))
    for step in range(int(stripes[0])):
        active = int(np.searchsorted(-stripes, -step))
        at = starts[:active] + step * STRIPE_BYTES
        for number, lane in enumerate(lanes):
            _mix_lane(lane[:active], words[at + 8 * number])
    hashes = np.empty(len(order), dtype=np.uint64)
    hashes[order] = _merge_lanes(lanes)
    return hashes


def _first_lanes(seeds: Seeds, count: int) -> list[U64]:
    constants = ((_PRIME_1 + _PRIME_2) & _MASK, _PRIME_2, 0, -_PRIME_1 & _MASK)
    lanes = [np.empty(count, dtype=np.uint64) for _ in constants]
    for lane, constant in zip(lanes, constants, strict=True):
        lane[:] = _plus(seeds, slice(None), constant)
    return lanes


def _merge_lanes(lanes: list[U64]) -> U64:
    merged = np.zeros(len(lanes[0]), dtype=np.uint64)
    for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True):
        turned = lane.copy()
        _rotate(turned, bits)
        merged += turned
    for lane in lanes:
        _scramble(lane)
        merged ^= lane
        merged *= _P1
        merged += _P4
    return merged


def _mix_lane(lane: U64, words: U64) -> None:
    words *= _P2
    lane += words
    _rotate(lane, 31)
    lane *= _P1


def _mix_word(hash_: U64, words: U64) -> None:
    _scramble(words)
    hash_ ^= words
    _rotate(hash_, 27)
    hash_ *= _P1
    hash_ += _P4


def _mix_int(hash_: U64, ints: U64) -> None:
    ints *= _P1
    hash_ ^= ints
    _rotate(hash_, 23)
    hash_ *= _P2
    hash_ += _P3


def _mix_byte(hash_: U64, bytes_: U64) -> None:
    bytes_ *= _P5
    hash_ ^= bytes_
    _rotate(hash_, 11)
    hash_ *= _P1


def _scramble(words: U64) -> None:
    words *= _P2
    _rotate(words, 31)
    words *= _P1


def _finish(hash_: U64) -> None:
    hash_ ^= hash_ >> np.uint64(33)
    hash_ *= _P2
    hash_ ^= hash_ >> np.uint64(29)
    hash_ *= _P3
    hash_ ^= hash_ >> np.uint64(32)


def _rotate(values: U64, bits: int) -> None:
    upper = values << np.uint64(bits)
    values >>= np.uint64(64 - bits)
    values |= upper


def _plus(seeds: Seeds, block: slice, constant: int) -> U64 | np.uint64:
    if isinstance(seeds, int):
        return np.uint64((seeds + constant) & _MASK)
    return seeds[block] + np.uint64(constant)


def _blocks(count: int) -> Iterator[slice]:
    for start in range(0, count, BLOCK_ROWS):
        yield slice(start, min(start + BLOCK_ROWS, count))
