"""Vectorised work on intervals of time by key: sessions that follow each other in less than a gap. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals of keys: row i is of key `ids[i]`, from `first[i]` to `last[i]`, both included."""

    ids: np.ndarray
    first: np.ndarray
    last: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def join(self, other: Intervals) -> Intervals:
        """These, then the other ones."""
        return Intervals(
            np.concatenate([self.ids, other.ids]),
            np.concatenate([self.first, other.first]),
            np.concatenate([self.last, other.last]),
        )

    def take(self, places: np.ndarray) -> Intervals:
        """The intervals at these positions."""
        return Intervals(self.ids[places], self.first[places], self.last[places])


def merge_intervals(pieces: Intervals, gap: int) -> tuple[Intervals, np.ndarray]:
    """Unite the intervals of a key of which one begins less than `gap` after another one ends.

    Returns the united ones, sorted by key and time, and for each piece the position of the one it is in.

    >>> pieces = Intervals(np.array([0, 0, 0, 1]), np.array([20, 0, 4, 0]), np.array([25, 11, 5, 3]))
    >>> united, places = merge_intervals(pieces, 10)
    >>> united.first.tolist(), united.last.tolist(), places.tolist()
    ([0, 0], [25, 3], [0, 0, 0, 1])
    """
    if not len(pieces):
        return pieces, np.empty(0, dtype=np.int64)
    order = _sort_order(pieces)
    sorted_ = pieces.take(order)
    reached = _running_max(sorted_)
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (sorted_.ids[1:] != sorted_.ids[:-1]) | (sorted_.first[1:] - reached[:-1] >= gap)
    starts = np.flatnonzero(begins)
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.cumsum(begins) - 1
    last = np.maximum.reduceat(sorted_.last, starts)
    return Intervals(sorted_.ids[starts], sorted_.first[starts], last), places


def _running_max(sorted_: Intervals) -> np.ndarray:
    """The latest end so far among the intervals of the same key."""
    least, span = _span(sorted_.last)
    ranks, values = sorted_.last - least, None
    if not _fits(sorted_.ids, span):
        order = np.argsort(sorted_.last)
        values, span = sorted_.last[order], len(order)
        ranks = np.empty(span, dtype=np.int64)
        ranks[order] = np.arange(span)
    # A later key has larger numbers, so that one pass over all of them begins anew with each key.
    reached: np.ndarray = np.maximum.accumulate(sorted_.ids * span + ranks) % span
    return reached + least if values is None else values[reached]


def _sort_order(pieces: Intervals) -> np.ndarray:
    """The order by key and then by start."""
    least, span = _span(pieces.first)
    if not _fits(pieces.ids, span):
        return np.lexsort((pieces.first, pieces.ids))
    return np.argsort(pieces.ids * span + (pieces.first - least), kind="stable")


def _span(times: np.ndarray) -> tuple[int, int]:
    least = int(times.min())
    return least, int(times.max()) - least + 1


def _fits(ids: np.ndarray, span: int) -> bool:
    """Whether a key and a time fit into one number, which sorts faster than two."""
    return (int(ids.max()) + 1) * span < 2**63


def number_keys(keys: pa.Table) -> tuple[pa.Table, np.ndarray]:
    """The distinct keys of rows, and for each row the number of its key among them."""
    ids = np.zeros(keys.num_rows, dtype=np.int64)
    for number, column in enumerate(keys.columns):
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        codes = encoded.indices.to_numpy().astype(np.int64)
        if number == 0:
            ids = codes
        else:
            _, ids = np.unique(ids * len(encoded.dictionary) + codes, return_inverse=True)
    places = np.empty(int(ids.max()) + 1, dtype=np.int64)
    places[ids] = np.arange(len(ids))
    return keys.take(pa.array(places)), ids
