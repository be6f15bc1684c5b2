"""Routing keys of Arrow columns: `xxhash64(columns)` bit for bit as Spark computes it.

State can be found again only if this agrees with Spark for every type and every value. The supported
types are therefore listed, and any other is refused. Vectorised over whole columns; the
arithmetic is in `xxh64`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.protocol.key_ranges import require_parallelism
from lakestate.tables.arrow.buffers import fixed_width_values, null_rows, value_bytes, value_offsets
from lakestate.tables.hashing.xxh64 import (
    SLACK_BYTES,
    U64,
    Seeds,
    hash_bytes,
    hash_few_bytes,
    hash_ints,
    hash_longs,
)

Column: TypeAlias = pa.Array | pa.ChunkedArray
Hasher: TypeAlias = Callable[[pa.Array, Seeds], U64]
Float = TypeVar("Float", np.float32, np.float64)

SPARK_SEED = 42
# Spark keeps decimals up to this precision in a long, and hashes them as one.
_LONG_DECIMAL_DIGITS = 18
_DECIMAL_BYTES = 16
# Up to this many values, one call of the C library per value is faster than NumPy: four times at 100.
FEW_VALUES = 128


def routing_keys(columns: Sequence[Column]) -> U64:
    """The routing key of each row, as Spark's `xxhash64(columns…)` read as unsigned.

    Each column is hashed with the hashes so far as its seeds; a null leaves them unchanged.

    The example from Spark's documentation, `xxhash64('Spark', array(123), 2)`:

    >>> list_of_ints = pa.list_(pa.int32())
    >>> routing_keys([pa.array(["Spark"]), pa.array([[123]], list_of_ints), pa.array([2], pa.int32())])
    array([5602566077635097486], dtype=uint64)
    """
    if not columns:
        raise InvalidInputError("a routing key needs at least one column")
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise InvalidInputError("key columns differ in length", found=sorted(lengths))
    hashes = _hash_column(columns[0], SPARK_SEED)
    for column in columns[1:]:
        hashes = _hash_column(column, hashes)
    return hashes


def subtasks_of(keys: U64, parallelism: int) -> npt.NDArray[np.int32]:
    """The subtask that owns each routing key: `protocol.key_ranges.subtask_of` over an array.

    >>> subtasks_of(np.array([0, 2**63, 2**64 - 1], dtype=np.uint64), 3)
    array([0, 1, 2], dtype=int32)
    """
    upper = keys >> np.uint64(32)
    upper *= np.uint64(require_parallelism(parallelism))
    upper >>= np.uint64(32)
    return upper.astype(np.int32)


def _hash_column(column: Column, seeds: Seeds) -> U64:
    if not isinstance(column, pa.ChunkedArray):
        return _hash_array(column, seeds)
    # Chunk by chunk: combining them first would copy, and fails above 2 GB of strings.
    hashes = np.empty(len(column), dtype=np.uint64)
    start = 0
    for chunk in column.chunks:
        rows = slice(start, start + len(chunk))
        hashes[rows] = _hash_array(chunk, _part(seeds, rows))
        start = rows.stop
    return hashes


def _hash_array(array: pa.Array, seeds: Seeds) -> U64:
    hashes = _hasher_of(array.type)(array, seeds)
    nulls = null_rows(array)
    if nulls.size:
        hashes[nulls] = seeds if isinstance(seeds, int) else seeds[nulls]
    return hashes


def _hasher_of(data_type: pa.DataType) -> Hasher:
    hasher = _HASHERS.get(data_type.id)
    if hasher is None:
        raise InvalidInputError(
            "a column of this type cannot be a key",
            object_name=str(data_type),
            action="cast it to a type that Spark can hash: no maps, and no unsigned integers",
        )
    return hasher


def _hash_nothing(array: pa.Array, seeds: Seeds) -> U64:
    return _seed_per_row(seeds, len(array))


def _hash_small_integers(array: pa.Array, seeds: Seeds) -> U64:
    return _hash_integers(array.cast(pa.int32()), seeds)


def _hash_integers(array: pa.Array, seeds: Seeds) -> U64:
    return hash_ints(fixed_width_values(array, np.uint32), seeds)


def _hash_longs(array: pa.Array, seeds: Seeds) -> U64:
    return hash_longs(fixed_width_values(array, np.uint64), seeds)


def _hash_times(array: pa.Array, seeds: Seeds) -> U64:
    return _hash_longs(_in_microseconds(array), seeds)


def _hash_floats(array: pa.Array, seeds: Seeds) -> U64:
    return hash_ints(_canonical(fixed_width_values(array, np.float32)).view(np.uint32), seeds)


def _hash_doubles(array: pa.Array, seeds: Seeds) -> U64:
    return hash_longs(_canonical(fixed_width_values(array, np.float64)).view(np.uint64), seeds)


def _hash_narrow_decimals(array: pa.Array, seeds: Seeds) -> U64:
    return _hash_decimals(array.cast(pa.decimal128(array.type.precision, array.type.scale)), seeds)


def _hash_decimals(array: pa.Array, seeds: Seeds) -> U64:
    halves = fixed_width_values(array, np.dtype("<u8,<u8")).view("<u8").reshape(-1, 2)
    if array.type.precision <= _LONG_DECIMAL_DIGITS:
        return hash_longs(halves[:, 0], seeds)
    # Like Java's `BigInteger.toByteArray`: big-endian, without redundant leading bytes.
    data = np.zeros(len(array) * _DECIMAL_BYTES + SLACK_BYTES, dtype=np.uint8)
    data[:-SLACK_BYTES].reshape(-1, _DECIMAL_BYTES)[:] = halves.view(np.uint8)[:, ::-1]
    lengths = _signed_lengths(halves)
    return hash_bytes(data, np.arange(1, len(array) + 1) * _DECIMAL_BYTES - lengths, lengths, seeds)


def _hash_views(array: pa.Array, seeds: Seeds) -> U64:
    return _hash_binaries(array.cast(pa.large_binary()), seeds)


def _hash_binaries(array: pa.Array, seeds: Seeds) -> U64:
    offsets, data = value_offsets(array), value_bytes(array)
    if len(array) <= FEW_VALUES:
        return hash_few_bytes(data, offsets[:-1], np.diff(offsets), seeds)
    # The last values may end too close to the end of the buffer for a whole word to be read.
    inner = int(np.searchsorted(offsets[1:], len(data) - SLACK_BYTES, side="right"))
    hashes = hash_bytes(data, offsets[:inner], np.diff(offsets[: inner + 1]), _part(seeds, slice(inner)))
    if inner == len(array):
        return hashes
    outer = offsets[inner:]
    padded = np.concatenate([data[outer[0] : outer[-1]], np.zeros(SLACK_BYTES, dtype=np.uint8)])
    last = hash_bytes(padded, outer[:-1] - outer[0], np.diff(outer), _part(seeds, slice(inner, None)))
    return np.concatenate([hashes, last])


def _hash_structs(array: pa.Array, seeds: Seeds) -> U64:
    for number in range(array.type.num_fields):
        seeds = _hash_array(array.field(number), seeds)
    return _seed_per_row(seeds, len(array))


def _hash_lists(array: pa.Array, seeds: Seeds) -> U64:
    _hasher_of(array.type.value_type)
    offsets, hashes = value_offsets(array), _seed_per_row(seeds, len(array))
    starts, lengths = offsets[:-1], np.diff(offsets)
    position, rows = 0, np.flatnonzero(lengths > 0)
    while rows.size:
        elements = array.values.take(pa.array(starts[rows] + position))
        hashes[rows] = _hash_array(elements, hashes[rows])
        position += 1
        rows = rows[lengths[rows] > position]
    return hashes


def _hash_fixed_lists(array: pa.Array, seeds: Seeds) -> U64:
    return _hash_lists(array.cast(pa.list_(array.type.value_type)), seeds)


def _hash_dictionary(array: pa.Array, seeds: Seeds) -> U64:
    dictionary, indices = array.dictionary, array.indices
    # With one seed for all rows, equal values have equal hashes: each is hashed once.
    if isinstance(seeds, int) and 0 < len(dictionary) <= len(array):
        hashes: U64 = _hash_array(dictionary, seeds)[indices.fill_null(0).to_numpy()]
        return hashes
    return _hash_array(dictionary.take(indices), seeds)


def _in_microseconds(array: pa.Array) -> pa.Array:
    if array.type.unit == "us":
        return array
    of_time = pa.types.is_timestamp(array.type)
    target = pa.timestamp("us", array.type.tz) if of_time else pa.duration("us")
    try:
        return array.cast(target)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            "a time does not fit into Spark's microseconds", object_name=str(array.type), found=error
        ) from error


def _canonical(values: npt.NDArray[Float]) -> npt.NDArray[Float]:
    """Negative zero as zero, and every NaN as Java's canonical NaN."""
    with np.errstate(invalid="ignore"):  # a signalling NaN would warn
        canonical = values + values.dtype.type(0)
    canonical[np.isnan(values)] = np.nan
    return canonical


def _signed_lengths(halves: U64) -> npt.NDArray[np.int64]:
    """How many bytes each 128-bit two's complement number needs, its sign included."""
    signs = (halves[:, 1].view(np.int64) >> 63).view(np.uint64)
    low, high = halves[:, 0] ^ signs, halves[:, 1] ^ signs
    lengths = np.ones(len(halves), dtype=np.int64)
    for bits in range(7, 64, 8):
        lengths += ((low >> np.uint64(bits)) | high) != 0
        lengths += (high >> np.uint64(bits)) != 0
    return lengths


def _seed_per_row(seeds: Seeds, count: int) -> U64:
    return np.full(count, seeds, dtype=np.uint64) if isinstance(seeds, int) else seeds.copy()


def _part(seeds: Seeds, rows: slice) -> Seeds:
    return seeds if isinstance(seeds, int) else seeds[rows]


_HASHERS: dict[int, Hasher] = {
    pa.lib.Type_NA: _hash_nothing,
    pa.lib.Type_BOOL: _hash_small_integers,
    pa.lib.Type_INT8: _hash_small_integers,
    pa.lib.Type_INT16: _hash_small_integers,
    pa.lib.Type_INT32: _hash_integers,
    pa.lib.Type_DATE32: _hash_integers,
    pa.lib.Type_INT64: _hash_longs,
    pa.lib.Type_TIMESTAMP: _hash_times,
    pa.lib.Type_DURATION: _hash_times,
    pa.lib.Type_FLOAT: _hash_floats,
    pa.lib.Type_DOUBLE: _hash_doubles,
    pa.lib.Type_DECIMAL32: _hash_narrow_decimals,
    pa.lib.Type_DECIMAL64: _hash_narrow_decimals,
    pa.lib.Type_DECIMAL128: _hash_decimals,
    pa.lib.Type_STRING: _hash_binaries,
    pa.lib.Type_BINARY: _hash_binaries,
    pa.lib.Type_LARGE_STRING: _hash_binaries,
    pa.lib.Type_LARGE_BINARY: _hash_binaries,
    pa.lib.Type_STRING_VIEW: _hash_views,
    pa.lib.Type_BINARY_VIEW: _hash_views,
    pa.lib.Type_FIXED_SIZE_BINARY: _hash_views,
    pa.lib.Type_STRUCT: _hash_structs,
    pa.lib.Type_LIST: _hash_lists,
    pa.lib.Type_LARGE_LIST: _hash_lists,
    pa.lib.Type_FIXED_SIZE_LIST: _hash_fixed_lists,
    pa.lib.Type_DICTIONARY: _hash_dictionary,
}
