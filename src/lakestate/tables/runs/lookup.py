"""Finding many keys in a run at once. Nothing here loops over rows in Python.

A lookup is a binary search on the routing keys, a second one on the whole-key hashes where many keys
share a routing key, and then a comparison of the key columns themselves: different keys may have the
same hash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.tables.runs.key_equality import same_keys
from lakestate.tables.runs.layout import RunLayout
from lakestate.tables.runs.run import SAMPLE_ROWS, KeyBuckets, Run

ABSENT = -1
SAMPLED_RUN_ROWS = 1_000_000
PART_KEYS = 8192


@dataclass(frozen=True)
class Query:
    """Keys to look for, in ascending order of routing key."""

    keys: np.ndarray
    hashes: np.ndarray | None
    columns: Sequence[pa.Array]

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: np.ndarray) -> Query:
        """The same query for some of its rows."""
        indices = pa.array(rows)
        return Query(
            self.keys[rows],
            None if self.hashes is None else self.hashes[rows],
            [pc.take(column, indices) for column in self.columns],
        )


@dataclass(frozen=True)
class HashedKeys:
    """Keys as given, their hashes, and the order that sorts their routing keys."""

    columns: Sequence[pa.Array]
    keys: np.ndarray
    hashes: np.ndarray | None
    order: np.ndarray

    @classmethod
    def of(cls, layout: RunLayout, columns: Sequence[pa.Array]) -> HashedKeys:
        """Hash and sort."""
        keys, hashes = layout.hashes(columns)
        return cls(columns, keys, hashes, np.argsort(keys))

    def are(self, columns: Sequence[pa.Array]) -> bool:
        """True if these are the same keys in the same order. Comparing is cheaper than hashing."""
        return all(one.equals(other) for one, other in zip(self.columns, columns, strict=True))

    def query(self) -> Query:
        """A query in ascending order.

        Searches for sorted keys walk through memory instead of jumping around in it, which is most
        of the cost with a large state.
        """
        return Query(self.keys, self.hashes, self.columns).take(self.order)


def positions(run: Run, query: Query) -> np.ndarray:
    """Where each key of the query is in the run, or ABSENT."""
    found = np.full(len(query), ABSENT, dtype=np.int64)
    start = int(np.searchsorted(query.keys, run.keys[0])) if len(run) else 0
    stop = int(np.searchsorted(query.keys, run.keys[-1], side="right")) if len(run) else 0
    if start == stop:
        return found
    places = _first_places(run, query, start, stop)
    here = np.flatnonzero(_same_hash(run, query, places, slice(start, stop)))
    places, rows = places[here], here + start
    while len(rows):
        same = same_keys(_query_columns(query, rows), _key_columns_at(run, places))
        found[rows[same]] = places[same]
        # Another key has this hash; the right one may be in the next row.
        rows, places = rows[~same], places[~same] + 1
        here = _same_hash(run, query, places, rows)
        places, rows = places[here], rows[here]
    return found


def _first_places(run: Run, query: Query, start: int, stop: int) -> np.ndarray:
    keys = query.keys[start:stop]
    low = _lower_bound(run, keys)
    if run.hashes is None or query.hashes is None:
        return low
    # Where the run has the routing key; elsewhere there is nothing to search.
    found = np.flatnonzero(run.keys[np.minimum(low, len(run) - 1)] == keys)
    high = np.searchsorted(run.keys, keys[found], side="right")
    hashes, wanted = run.hashes, query.hashes[start:stop][found]
    low[found] = first_places(low[found], high, lambda places, rows: hashes[places] < wanted[rows])
    return low


def _lower_bound(run: Run, keys: np.ndarray) -> np.ndarray:
    """For each routing key, the first place in the run that is not less.

    In a large run every step of a binary search misses the processor's cache. Samples or buckets narrow the
    search to the few rows in which the last steps take place, and those of some keys fit in the cache.
    """
    if len(run) < SAMPLED_RUN_ROWS:
        return np.searchsorted(run.keys, keys, side="left")
    buckets = run.searches.count(len(keys))
    parts = (keys[at : at + PART_KEYS] for at in range(0, len(keys), PART_KEYS))
    if buckets is None:
        return np.concatenate([_search_samples(run, part) for part in parts])
    return np.concatenate([_search_buckets(run, buckets, part) for part in parts])


def _search_samples(run: Run, keys: np.ndarray) -> np.ndarray:
    # The place is after the last sample that is less, and at most one block further.
    places = np.searchsorted(run.key_samples, keys, side="left") * SAMPLE_ROWS
    places -= SAMPLE_ROWS - 1
    np.maximum(places, 0, out=places)
    return _search_on(run, keys, places, SAMPLE_ROWS - 1)


def _search_buckets(run: Run, buckets: KeyBuckets, keys: np.ndarray) -> np.ndarray:
    starts = buckets.starts.take(buckets.of(keys))
    return _search_on(run, keys, starts.astype(np.int64), buckets.rows_max)


def _search_on(run: Run, keys: np.ndarray, places: np.ndarray, rows_max: int) -> np.ndarray:
    """Move each place on to the first one that is not less, which is at most some rows further."""
    step = 1 << rows_max.bit_length() >> 1
    while step:
        # Past the end of the run, its last key is compared instead.
        is_less = run.keys.take(places + (step - 1), mode="clip") < keys
        places += is_less * step
        step >>= 1
    np.minimum(places, len(run), out=places)
    return places


def first_places(
    low: np.ndarray, high: np.ndarray, before: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """For each row, the first place in its own [low, high) that is not before what it looks for.

    `before` takes places and the rows that they are compared with.
    """
    low, high = low.copy(), high.copy()
    open_ = np.flatnonzero(low < high)
    while len(open_):
        middle = (low[open_] + high[open_]) >> 1
        less = before(middle, open_)
        low[open_] = np.where(less, middle + 1, low[open_])
        high[open_] = np.where(less, high[open_], middle)
        open_ = open_[low[open_] < high[open_]]
    return low


def key_spans(run: Run, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows of sorted routing keys that a run has, and where those of each begin and end in it.

    A key that is not there is searched for once.
    """
    low = np.searchsorted(run.keys, keys, side="left")
    found = np.flatnonzero(run.keys[np.minimum(low, len(run) - 1)] == keys) if len(run) else low[:0]
    low = low[found]
    return found, low, np.searchsorted(run.keys, keys[found], side="right")


def span_places(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All places in some spans [low, high), and for each place the number of its span."""
    counts = high - low
    spans = np.repeat(np.arange(len(counts)), counts)
    begins = np.cumsum(counts) - counts
    return np.arange(len(spans)) + np.repeat(low - begins, counts), spans


def _same_hash(run: Run, query: Query, places: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
    same: np.ndarray = run.keys.take(places, mode="clip") == query.keys[rows]
    if run.hashes is not None and query.hashes is not None:
        same &= run.hashes.take(places, mode="clip") == query.hashes[rows]
    same &= places < len(run)
    return same


def _query_columns(query: Query, rows: np.ndarray) -> Sequence[pa.Array]:
    if len(rows) == len(query):
        return query.columns
    indices = pa.array(rows)
    return [pc.take(column, indices) for column in query.columns]


def _key_columns_at(run: Run, places: np.ndarray) -> Sequence[pa.Array]:
    indices = pa.array(places)
    return [run.take(name, indices) for name in run.layout.key_names]
