"""Which rows of two sides have equal keys and times in range. Pure, and vectorised.

Rows of one side are sorted by key and time, and every row of the other side finds its range among them.
The cost follows the rows and the pairs, however many rows share a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakestate.tables.runs.key_equality import comparable_bits

PAIRS_MAX = 256 * 1024
"""Pairs in one piece of output, unless a single row has more."""

_COMPOSITE_MAX = 2**62


def key_codes(*sides: Sequence[pa.ChunkedArray | pa.Array]) -> list[np.ndarray]:
    """A number for each row of each side: the same for equal keys, and others for others. Nulls are equal.

    >>> [codes.tolist() for codes in key_codes([pa.array(["a", "b", "a"])], [pa.array(["b", "c"])])]
    [[0, 1, 0], [1, 2]]
    """
    codes = _column_codes([side[0] for side in sides])
    for place in range(1, len(sides[0])):
        more = _column_codes([side[place] for side in sides])
        width = int(more.max(initial=0)) + 1
        codes = _column_codes([pa.array(codes * width + more)])
    return np.split(codes, np.cumsum([len(side[0]) for side in sides])[:-1])


def _column_codes(columns: Sequence[pa.ChunkedArray | pa.Array]) -> np.ndarray:
    chunks = [chunk for column in columns for chunk in _chunks(column) if len(chunk)]
    if not chunks:
        return np.empty(0, dtype=np.int64)
    encoded = pa.chunked_array(chunks).dictionary_encode(null_encoding="encode")
    return np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks]).astype(np.int64)


def _chunks(column: pa.ChunkedArray | pa.Array) -> list[pa.Array]:
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return [comparable_bits(chunk) if pa.types.is_floating(chunk.type) else chunk for chunk in chunks]


def packed_ids(*sides: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The same for rows of whole numbers, which are mostly close enough to fit into one number.

    >>> one, other = packed_ids([np.array([1, 1]), np.array([70, 71])], [np.array([1]), np.array([71])])
    >>> is_among(one, other).tolist()
    [False, True]
    """
    ids = [np.zeros(len(side[0]), dtype=np.int64) for side in sides]
    room = _COMPOSITE_MAX
    for column in zip(*sides, strict=True):
        known = [part for part in column if len(part)]
        least = min((int(part.min()) for part in known), default=0)
        width = max((int(part.max()) for part in known), default=0) - least + 1
        room //= width
        if not room:
            return key_codes(*[[pa.array(part) for part in side] for side in sides])
        ids = [each * width + (part - least) for each, part in zip(ids, column, strict=True)]
    return ids


def is_among(ids: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which of these numbers are among those that are known."""
    if not len(known):
        return np.zeros(len(ids), dtype=bool)
    known = np.sort(known)
    places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    found: np.ndarray = known[places] == ids
    return found


@dataclass(frozen=True, slots=True)
class TimedCodes:
    """Rows as numbers of their keys, and their times in microseconds."""

    codes: np.ndarray
    times_us: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True, slots=True)
class Matches:
    """For each left row, its matches: those from `low` up to `high` in the right rows, sorted by `order`."""

    order: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def left(self) -> np.ndarray:
        """Which left rows have a match."""
        return self.low < self.high

    @property
    def right(self) -> np.ndarray:
        """Which right rows have a match."""
        size = len(self.order) + 1
        begun = np.bincount(self.low, minlength=size) - np.bincount(self.high, minlength=size)
        found = np.empty(len(self.order), dtype=bool)
        found[self.order] = np.cumsum(begun)[:-1] > 0
        return found

    def pairs(self, pairs_max: int = PAIRS_MAX) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The numbers of the left and right rows of all pairs, some at a time."""
        ends = np.cumsum(self.high - self.low)
        total = int(ends[-1]) if len(ends) else 0
        cuts = np.searchsorted(ends, np.arange(pairs_max, total, pairs_max), side="right")
        for first, last in zip((0, *cuts), (*cuts, len(ends)), strict=True):
            rows, places = _expand(self.low[first:last], self.high[first:last])
            if len(rows):
                yield rows + first, self.order[places]


def _expand(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    counts = high - low
    rows = np.repeat(np.arange(len(low)), counts)
    shift = low - (np.cumsum(counts) - counts)
    return rows, np.arange(len(rows)) + shift[rows]


def find_matches(left: TimedCodes, right: TimedCodes, lower_us: int, upper_us: int) -> Matches:
    """The right rows of each left row's key whose time is in its range.

    >>> left = TimedCodes(np.array([0, 1]), np.array([10, 10]))
    >>> right = TimedCodes(np.array([1, 0, 0]), np.array([12, 10, 13]))
    >>> [[rows.tolist() for rows in pair] for pair in find_matches(left, right, 0, 2).pairs()]
    [[[0, 1], [1, 0]]]
    """
    if not len(left) or not len(right):
        none = np.zeros(len(left), dtype=np.int64)
        return Matches(np.arange(len(right)), none, none)
    first_us, last_us = int(right.times_us.min()), int(right.times_us.max())
    width = last_us - first_us + 2
    since, until = left.times_us + lower_us, left.times_us + upper_us
    if (max(int(left.codes.max()), int(right.codes.max())) + 1) * width < _COMPOSITE_MAX:
        places = right.times_us - first_us
        since = np.clip(since, first_us, last_us + 1) - first_us
        until = np.clip(until, first_us - 1, last_us) + 1 - first_us
    else:
        # So many keys over so long a time do not fit into 64 bits; the ranks of the times do.
        times, places = np.unique(right.times_us, return_inverse=True)
        width = len(times) + 1
        since, until = np.searchsorted(times, since), np.searchsorted(times, until, side="right")
    composite = right.codes * width + places
    order = np.argsort(composite, kind="stable")
    composite = composite[order]
    begin = left.codes * width
    return Matches(
        order, np.searchsorted(composite, begin + since), np.searchsorted(composite, begin + until)
    )
