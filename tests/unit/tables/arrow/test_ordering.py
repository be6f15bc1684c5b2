"""Rows are put in order as `np.lexsort` does it."""

from __future__ import annotations

import numpy as np
import pytest

from lakestate.tables.arrow.ordering import stable_order


@pytest.mark.parametrize("seed", range(60))
def test_the_order_is_that_of_a_stable_sort(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, different = int(rng.integers(0, 60)), int(rng.integers(1, 20))
    keys = rng.integers(0, 2**64, different, dtype=np.uint64)[rng.integers(0, different, count)]
    hashes = rng.integers(0, 2**64, different, dtype=np.uint64)[rng.integers(0, different, count)]
    shown = [hashes, hashes >> np.uint64(60), np.uint64(2**63) + (hashes & np.uint64(3))][seed % 3]
    times = rng.integers(-(2**63), 2**63 - 1, count) if seed % 2 else rng.integers(-50, 50, count)
    known = np.lexsort((rng.random(count), keys))
    for columns in ((keys,), (keys, shown), (keys, times), (keys, shown, times)):
        expected = np.lexsort(columns[::-1]).tolist()
        assert stable_order(*columns).tolist() == expected
        assert stable_order(*columns, known=known).tolist() == expected


def test_numbers_that_differ_only_in_bits_that_do_not_fit_are_told_apart() -> None:
    keys = np.repeat(np.arange(1000, dtype=np.uint64), 2)
    hashes = np.tile(np.array([2**64 - 1, 0], dtype=np.uint64), 1000)
    hashes[500:510] = np.array([2, 1] * 5, dtype=np.uint64)
    assert stable_order(keys, hashes).tolist() == np.lexsort((hashes, keys)).tolist()
