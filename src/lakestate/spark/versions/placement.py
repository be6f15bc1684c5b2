"""Sends each row to the partition with a given number.

Spark 4.1 has `repartitionById`. Older versions only shuffle by Murmur3 hash: there, the number is replaced by
the integer whose hash is that number. A hash of an integer can be inverted, so nothing has to be searched.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from lakestate.protocol.key_ranges import subtask_sql

if TYPE_CHECKING:
    from pyspark.sql import Column

_BITS = 2**32
_SEED = 42
"""The one with which Spark hashes rows that it shuffles."""


def subtask_place_sql(routed_by: Iterable[str], parallelism: int) -> str:
    """The place, for `repartition_by_place`, of the subtask that owns the routing key of SQL expressions.

    Rows of one subtask have the same place, and others have another.
    """
    subtask = subtask_sql(f"xxhash64({', '.join(routed_by)})", parallelism)
    return subtask if _has_repartition_by_id() else hashed_place_sql(subtask, parallelism)


def repartition_by_place(frame: DataFrame, count: int, place: Column) -> DataFrame:
    """Send each row to the partition with the number of its subtask.

    If the place is a column of the frame, rows that Spark groups by it and others stay where they are.
    """
    if _has_repartition_by_id():
        return frame.repartitionById(count, place)
    return frame.repartition(count, place)


def hashed_place_sql(number: str, count: int) -> str:
    """The integer that a shuffle by hash sends to the partition with this number, as SQL.

    >>> hashed_place_sql("subtask", 2)
    'element_at(array(-1693959553,-1910889132), subtask + 1)'
    """
    return f"element_at({_places_sql(count)}, {number} + 1)"


def hash_inverse(hashed: int) -> int:
    """The integer whose Murmur3 hash, as Spark computes it for a column of type int, is this one.

    >>> hash_inverse(-559580957)
    1
    """
    value = _undo_shifted_xor(hashed % _BITS, 16) * pow(0xC2B2AE35, -1, _BITS) % _BITS
    value = _undo_shifted_xor(value, 13) * pow(0x85EBCA6B, -1, _BITS) % _BITS
    # Four bytes were hashed.
    value = _undo_shifted_xor(value, 16) ^ 4
    value = _rotate_right((value - 0xE6546B64) * pow(5, -1, _BITS) % _BITS, 13) ^ _SEED
    value = _rotate_right(value * pow(0x1B873593, -1, _BITS) % _BITS, 15)
    value = value * pow(0xCC9E2D51, -1, _BITS) % _BITS
    return value - _BITS if value >= _BITS // 2 else value


@cache
def _places_sql(count: int) -> str:
    return f"array({','.join(str(hash_inverse(number)) for number in range(count))})"


def _undo_shifted_xor(value: int, bits: int) -> int:
    found = value
    for _ in range(32 // bits):
        found = value ^ (found >> bits)
    return found


def _rotate_right(value: int, bits: int) -> int:
    return (value >> bits | value << (32 - bits)) % _BITS


def _has_repartition_by_id() -> bool:
    return hasattr(DataFrame, "repartitionById")
