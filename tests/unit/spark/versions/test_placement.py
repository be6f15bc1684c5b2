"""The integers that a shuffle by hash sends to a wanted partition. A JVM is not needed to tell."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from lakestate.spark.versions import placement
from lakestate.spark.versions.placement import (
    hash_inverse,
    hashed_place_sql,
    repartition_by_place,
    subtask_place_sql,
)

BITS = 2**32
SUBTASK = "cast(shiftright(shiftrightunsigned(xxhash64(a, b), 32) * 2L, 32) as int)"


def murmur3(number: int, seed: int = 42) -> int:
    """Spark's hash of an int, step by step, as the reference describes it."""

    def rotate(value: int, bits: int) -> int:
        return (value << bits | value >> (32 - bits)) % BITS

    mixed = rotate(number % BITS * 0xCC9E2D51 % BITS, 15) * 0x1B873593 % BITS
    value = (rotate(seed ^ mixed, 13) * 5 + 0xE6546B64) % BITS ^ 4
    value = (value ^ value >> 16) * 0x85EBCA6B % BITS
    value = (value ^ value >> 13) * 0xC2B2AE35 % BITS
    value ^= value >> 16
    return value - BITS if value >= BITS // 2 else value


def test_the_reference_hashes_as_spark_does() -> None:
    # select hash(0), hash(1)
    assert [murmur3(number) for number in (0, 1)] == [933211791, -559580957]


def test_every_integer_is_found_by_its_hash() -> None:
    choose = random.Random(1)
    numbers = [0, 1, -1, 2**31 - 1, -(2**31), *(choose.randrange(-(2**31), 2**31) for _ in range(2000))]
    assert [hash_inverse(murmur3(number)) for number in numbers] == numbers


@pytest.mark.parametrize("count", [1, 2, 7, 200, 32768])
def test_every_partition_has_an_integer_that_is_hashed_into_it(count: int) -> None:
    text = hashed_place_sql("subtask", count)
    places = text.removeprefix("element_at(array(").removesuffix("), subtask + 1)").split(",")
    assert [murmur3(int(place)) % count for place in places] == list(range(count))


class Frame:
    """Answers which way it was partitioned."""

    def repartition(self, *arguments: Any) -> Any:
        return "by hash", *arguments

    def repartitionById(self, *arguments: Any) -> Any:
        return "by id", *arguments


@pytest.mark.parametrize(
    ("has_it", "expected", "way"),
    [
        (True, SUBTASK, "by id"),
        (
            False,
            f"element_at(array(-1693959553,-1910889132), {SUBTASK} + 1)",
            "by hash",
        ),
    ],
    ids=["since 4.1", "before"],
)
def test_rows_are_placed_as_the_version_can(
    monkeypatch: pytest.MonkeyPatch, has_it: bool, expected: str, way: str
) -> None:
    known = SimpleNamespace(repartitionById=None) if has_it else SimpleNamespace()
    monkeypatch.setattr(placement, "DataFrame", known)
    assert subtask_place_sql(["a", "b"], 2) == expected
    frame: Any = Frame()
    place: Any = "place"
    assert repartition_by_place(frame, 2, place) == (way, 2, "place")
