"""Routing keys of Arrow columns: `xxhash64(columns)` bit for bit as Spark computes it.

State is found again only if this agrees with Spark for every type and every value, so the types
are listed and any other is refused. Vectorised over whole columns; the arithmetic is in `xxh64`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError
from lakestate.protocol.key_ranges import checked_parallelism
from lakestate.tables.xxh64 import SLACK_BYTES, U64, Indexes, Seeds, hash_bytes, hash_ints, hash_longs

if TYPE_CHECKING:
    from collections.abc import Sequence

Column: TypeAlias = pa.Array | pa.ChunkedArray

SPARK_SEED = 42
# Spark keeps decimals up to this precision in a long, and hashes them as one.
_LONG_DECIMAL_DIGITS = 18
_DECIMAL_BYTES = 16


def routing_keys(columns: Sequence[Column]) -> U64:
    """The routing key of each row, as Spark's `xxhash64(columns…)` read as unsigned.

    Each column is hashed with the hashes so far as its seeds; a null leaves them unchanged.

    >>> routing_keys([pa.array(["Spark", None]), pa.array([123, 7], pa.int32())])
    array([ 5602566077635097486, 10345651443163935848], dtype=uint64)
    """
    if not columns:
        raise InvalidInputError("a routing key needs at least one column")
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise InvalidInputError("key columns differ in length", found=sorted(lengths))
    seeds: Seeds = SPARK_SEED
    for column in columns:
        seeds = _hash_column(column, seeds)
    assert not isinstance(seeds, int)
    return seeds


def subtasks_of(keys: U64, parallelism: int) -> npt.NDArray[np.int32]:
    """The subtask that owns each routing key: `protocol.key_ranges.subtask_of` over an array.

    >>> subtasks_of(np.array([0, 2**63, 2**64 - 1], dtype=np.uint64), 3)
    array([0, 1, 2], dtype=int32)
    """
    upper = keys >> np.uint64(32)
    upper *= np.uint64(checked_parallelism(parallelism))
    upper >>= np.uint64(32)
    return upper.astype(np.int32)


def _hash_column(column: Column, seeds: Seeds) -> U64:
    if not isinstance(column, pa.ChunkedArray):
        return _hash_array(column, seeds)
    # Chunk by chunk: joining them first would copy, and fails for over 2 GB of strings.
    hashes = np.empty(len(column), dtype=np.uint64)
    start = 0
    for chunk in column.chunks:
        rows = slice(start, start + len(chunk))
        hashes[rows] = _hash_array(chunk, seeds if isinstance(seeds, int) else seeds[rows])
        start = rows.stop
    return hashes


def _hash_array(array: pa.Array, seeds: Seeds) -> U64:
    if len(array) == 0:
        _hash_type(array.type)
        return np.empty(0, dtype=np.uint64)
    if pa.types.is_null(array.type):
        return _all_seeds(seeds, len(array))
    hashes = _hash_values(array, seeds)
    if array.null_count:
        nulls = np.flatnonzero(_to_numpy(array.is_null()))
        hashes[nulls] = seeds if isinstance(seeds, int) else seeds[nulls]
    return hashes
