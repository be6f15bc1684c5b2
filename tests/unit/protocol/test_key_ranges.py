"""Key ranges tile the unsigned 64-bit space, and agree with the arithmetic that routes rows."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakestate.errors import InvalidInputError
from lakestate.protocol.key_ranges import (
    ALL_KEYS,
    KEY_MAX,
    PARALLELISM_MAX,
    KeyRange,
    key_range_of,
    require_parallelism,
    subtask_of,
    subtask_sql,
)

SAMPLED = sorted(random.Random(7).sample(range(301, PARALLELISM_MAX), 25))
PARALLELISMS = [*range(1, 301), *SAMPLED, PARALLELISM_MAX - 1, PARALLELISM_MAX]


def ranges(parallelism: int) -> list[KeyRange]:
    return [key_range_of(index, parallelism) for index in range(parallelism)]


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_the_ranges_tile_the_space_and_their_ends_map_back(parallelism: int) -> None:
    tiles = ranges(parallelism)
    assert [tile.first for tile in tiles] == [0, *(tile.last + 1 for tile in tiles[:-1])]
    assert tiles[-1].last == KEY_MAX
    assert [subtask_of(tile.first, parallelism) for tile in tiles] == list(range(parallelism))
    assert [subtask_of(tile.last, parallelism) for tile in tiles] == list(range(parallelism))


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_no_subtask_owns_more_than_its_share(parallelism: int) -> None:
    sizes = {tile.last - tile.first + 1 for tile in ranges(parallelism)}
    assert max(sizes) - min(sizes) <= 2**32


@given(key=st.integers(0, KEY_MAX), parallelism=st.integers(1, PARALLELISM_MAX))
def test_a_key_lies_in_the_range_of_its_subtask(key: int, parallelism: int) -> None:
    owner = key_range_of(subtask_of(key, parallelism), parallelism)
    assert owner.first <= key <= owner.last


@given(key=st.integers(0, KEY_MAX), parallelism=st.integers(1, PARALLELISM_MAX))
def test_the_sql_computes_the_same_in_signed_64_bit_integers(key: int, parallelism: int) -> None:
    signed = key - 2**64 if key >= 2**63 else key
    factor = re.fullmatch(
        r"cast\(shiftright\(shiftrightunsigned\(k, 32\) \* (\d+)L, 32\) as int\)",
        subtask_sql("k", parallelism),
    )
    assert factor is not None
    product = ((signed % 2**64) >> 32) * int(factor[1])
    assert product < 2**63, "Spark's bigint would overflow"
    assert product >> 32 == subtask_of(key, parallelism)


@pytest.mark.parametrize("parallelism", [0, -1, PARALLELISM_MAX + 1, True])
def test_a_parallelism_out_of_bounds_is_refused(parallelism: int) -> None:
    with pytest.raises(InvalidInputError, match="not a parallelism"):
        require_parallelism(parallelism)
    with pytest.raises(InvalidInputError, match="not a parallelism"):
        subtask_sql("k", parallelism)


@pytest.mark.parametrize("index", [-1, 4])
def test_a_subtask_index_out_of_bounds_is_refused(index: int) -> None:
    with pytest.raises(InvalidInputError, match="not a subtask index"):
        key_range_of(index, 4)


@pytest.mark.parametrize("ends", [(-1, 3), (4, 3), (0, KEY_MAX + 1)])
def test_a_range_outside_the_space_is_refused(ends: tuple[int, int]) -> None:
    with pytest.raises(InvalidInputError, match="not a key range"):
        KeyRange(*ends)


KEY_RANGES = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(
    lambda ends: KeyRange(min(ends), max(ends))
)


@given(one=KEY_RANGES, other=KEY_RANGES)
def test_overlap_intersection_and_containment_agree_with_sets_of_keys(one: KeyRange, other: KeyRange) -> None:
    left, right = set(range(one.first, one.last + 1)), set(range(other.first, other.last + 1))
    shared = one.intersection(other)
    assert (set() if shared is None else set(range(shared.first, shared.last + 1))) == left & right
    assert one.overlaps(other) == bool(left & right)
    assert one.contains(other) == (right <= left)
    assert ALL_KEYS.contains(one)
