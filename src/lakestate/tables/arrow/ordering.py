"""The order of rows by several columns of integers, in few passes over few rows. Pure NumPy."""

from __future__ import annotations

import numpy as np

_WORD_BITS = 64


def stable_order(first: np.ndarray, *finer: np.ndarray, known: np.ndarray | None = None) -> np.ndarray:
    """The order of rows by columns, the most significant one first. Equal rows stay in their order.

    `known` is an order by the first column, in which equal rows may be in any order. Otherwise rows that are
    already sorted in pieces, as those of several runs, are merged and not sorted anew. Only rows that are
    equal in the columns before are sorted by a finer one, by one number for each: that takes less than half
    the time of `np.lexsort`.

    >>> stable_order(np.array([2, 1, 2, 1]), np.array([5, 7, 4, 7])).tolist()
    [1, 3, 2, 0]
    """
    order = np.argsort(first, kind="stable") if known is None else known.copy()
    begins = _differs(first[order])
    if known is not None:
        _sort_ties(order, begins, np.arange(len(order)), is_stable=False)
    for column in finer:
        _sort_ties(order, begins, column)
        begins |= _differs(column[order])
    return order


def _sort_ties(order: np.ndarray, begins: np.ndarray, column: np.ndarray, *, is_stable: bool = True) -> None:
    """Sort rows that are tied, in place, by a column."""
    is_tied = ~begins
    is_tied[:-1] |= ~begins[1:]
    places = np.flatnonzero(is_tied)
    if not len(places):
        return
    rows = order[places]
    groups, values = np.cumsum(begins[places]).astype(np.uint64), column[rows]
    offsets = values.astype(np.uint64, copy=False) - np.uint64(int(values.min()) % 2**_WORD_BITS)
    group_bits = int(groups[-1]).bit_length()
    lost_bits = max(0, group_bits + int(offsets.max()).bit_length() - _WORD_BITS)
    words = (groups << np.uint64(_WORD_BITS - group_bits)) | (offsets >> np.uint64(lost_bits))
    inner = np.argsort(words, kind="stable" if is_stable else None)
    if lost_bits and _are_unsorted(words[inner], offsets[inner]):
        inner = np.lexsort((values, groups))
    order[places] = rows[inner]


def _are_unsorted(words: np.ndarray, offsets: np.ndarray) -> bool:
    """Whether numbers of which some bits are left out sort otherwise than the whole ones."""
    return bool(((words[1:] == words[:-1]) & (offsets[1:] < offsets[:-1])).any())


def _differs(values: np.ndarray) -> np.ndarray:
    """Where a value differs from the one before."""
    differs = np.ones(len(values), dtype=bool)
    differs[1:] = values[1:] != values[:-1]
    return differs
