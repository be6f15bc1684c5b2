"""A run: rows sorted by routing key, each key once, ready to be searched.

In memory it is one Arrow table with one chunk per column: on the heap for what this epoch wrote, in a
memory map for what earlier epochs left in the run cache.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.protocol.key_ranges import KeyRange
from lakestate.tables.arrow.wide_text import one_array
from lakestate.tables.runs.layout import HASH, KEY, REMOVED, UPDATED, RunLayout

SAMPLE_ROWS = 64
BUCKET_ROWS = 16
BUCKET_ROWS_MAX = 127
"""In a fuller bucket, a search takes as many steps as one that begins with samples."""
BUCKETS_AFTER = 256
"""Buckets are made when a run was searched for one key for so many of its rows. They pay off after some more
keys, and a process that serves a stream lives for much longer."""
BLOCK_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class KeyBuckets:
    """Where the routing keys of each of many equal parts of their range begin in a run.

    Routing keys are hashes and spread evenly, so that a few rows are left to search.
    """

    first: np.uint64
    last: np.uint64
    shift: np.uint64
    starts: np.ndarray
    rows_max: int

    @classmethod
    def of_keys(cls, keys: np.ndarray) -> KeyBuckets | None:
        """The buckets of ascending keys; None if too many keys are in one."""
        span = int(keys[-1]) - int(keys[0])
        shift = max(0, span.bit_length() - (len(keys) // BUCKET_ROWS).bit_length())
        counts = np.zeros((span >> shift) + 2, dtype=np.int64)
        empty = cls(keys[0], keys[-1], np.uint64(shift), counts, 0)
        for start in range(0, len(keys), BLOCK_ROWS):
            # Few buckets next to each other, as the keys ascend.
            numbers = empty.of(keys[start : start + BLOCK_ROWS])
            found = np.bincount(numbers - numbers[0])
            counts[numbers[0] + 1 : numbers[0] + 1 + len(found)] += found
        rows_max = int(counts.max())
        if rows_max > BUCKET_ROWS_MAX:
            return None
        narrow = np.int32 if len(keys) < 2**31 else np.int64
        return replace(empty, starts=np.cumsum(counts, dtype=narrow), rows_max=rows_max)

    def of(self, keys: np.ndarray) -> np.ndarray:
        """The number of the bucket of each key, and the nearest for one that is in none."""
        inside = np.minimum(np.maximum(keys, self.first), self.last)
        numbers: np.ndarray = ((inside - self.first) >> self.shift).view(np.int64)
        return numbers


class Searches:
    """Counts the keys that a run was searched for, and makes buckets once they are worth their time."""

    def __init__(self, keys: np.ndarray) -> None:
        self._keys = keys
        self._left: int | None = 1 + len(keys) // BUCKETS_AFTER
        self._buckets: KeyBuckets | None = None

    def count(self, key_count: int) -> KeyBuckets | None:
        """The buckets for a search for so many keys, or None if there are none, yet or at all."""
        left = self._left
        if left is not None:
            # Threads that count at the same time may lose a count or both make buckets, which does no harm.
            if left > key_count:
                self._left = left - key_count
            else:
                self._buckets, self._left = KeyBuckets.of_keys(self._keys), None
        return self._buckets


@dataclass(frozen=True)
class Run:
    """Sorted rows of one table, in one chunk per column except right after they were fetched."""

    rows: pa.Table
    layout: RunLayout
    hold: object = None
    """Keeps the file of the rows in the cache while this run is in use."""

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @cached_property
    def keys(self) -> np.ndarray:
        """The routing keys, ascending."""
        return self._numbers(KEY)

    @cached_property
    def key_samples(self) -> np.ndarray:
        """Every `SAMPLE_ROWS`-th routing key: an index that fits in the processor's cache."""
        return np.ascontiguousarray(self.keys[::SAMPLE_ROWS])

    @cached_property
    def searches(self) -> Searches:
        """The index that a run gets when it is searched often. All that share a run share it."""
        return Searches(self.keys)

    @cached_property
    def hashes(self) -> np.ndarray | None:
        """The hashes of whole keys, ascending within a routing key; None where they are the same."""
        return self._numbers(HASH) if self.layout.has_fine_key else None

    @cached_property
    def key_columns(self) -> list[pa.Array]:
        """The key columns."""
        return [self.column(name) for name in self.layout.key_names]

    @cached_property
    def has_removed(self) -> bool:
        """True if some row marks its key as removed."""
        return self.layout.has_removals and bool(pc.any(self.rows.column(REMOVED)).as_py())

    @cached_property
    def removed(self) -> np.ndarray | None:
        """Which rows mark their key as removed; None if none does."""
        if not self.has_removed:
            return None
        flags: np.ndarray = self.column(REMOVED).to_numpy(zero_copy_only=False)
        return flags

    def removed_at(self, places: np.ndarray) -> np.ndarray | None:
        """Which of some rows mark their key as removed; None if none of the run does."""
        if not self.has_removed:
            return None
        flags: np.ndarray = self.take(REMOVED, pa.array(places)).to_numpy(zero_copy_only=False)
        return flags

    @cached_property
    def times_us(self) -> np.ndarray | None:
        """The time that decides when a row expires, or None if rows of this table do not."""
        config = self.layout.config
        name = UPDATED if self.layout.has_updated else config.time_column
        if name is None:
            return None
        times = self.column(name).cast(pa.int64()).fill_null(_NEVER_US)
        numbers: np.ndarray = times.to_numpy(zero_copy_only=False)
        return numbers

    @property
    def key_range(self) -> KeyRange | None:
        """The smallest range that holds all routing keys, or None if there is no row."""
        return KeyRange(int(self.keys[0]), int(self.keys[-1])) if len(self) else None

    def build_index(self) -> Run:
        """The same run, with its index computed now, for all that share it, and not at each search."""
        _ = self.key_samples, self.searches, self.has_removed
        return self

    def with_hold(self, hold: object) -> Run:
        """The same run, which also keeps `hold` alive. Computed values are shared."""
        twin = replace(self, hold=hold)
        twin.__dict__.update(self.__dict__ | {"hold": hold})
        return twin

    def column(self, name: str) -> pa.Array:
        """A column as one array."""
        return one_array(self.rows.column(name))

    def take(self, name: str, places: pa.Array) -> pa.Array:
        """Some rows of a column, by their places.

        Arrow would combine all chunks of the column first, even for a few rows.
        """
        chunked = self.rows.column(name)
        if chunked.num_chunks == 1:
            return pc.take(chunked.chunk(0), places)
        numbers = places.to_numpy()
        if np.any(numbers[1:] < numbers[:-1]):
            # A query is in order of routing keys; the rows of one routing key are not.
            order = np.argsort(numbers)
            return pc.take(self.take(name, places.take(pa.array(order))), pa.array(np.argsort(order)))
        starts = np.cumsum([0, *map(len, chunked.chunks)])
        cuts = np.searchsorted(numbers, starts)
        pieces = [
            pc.take(chunk, pc.subtract(places.slice(first, last - first), int(start)))
            for chunk, start, (first, last) in zip(chunked.chunks, starts, pairwise(cuts), strict=False)
            if last > first
        ]
        return pa.concat_arrays(pieces) if pieces else pa.nulls(0, chunked.type)

    def has_values(self, names: Collection[str]) -> bool:
        """True if the run has these value columns. One that was fetched for less may lack some."""
        return set(names) <= set(self.layout.value_names)

    def select(self, layout: RunLayout) -> Run:
        """The run with the columns of a layout, of which it must have all. No copy."""
        if layout is self.layout or layout.value_names == self.layout.value_names:
            return self
        return Run(self.rows.select(layout.schema.names), layout, self.hold)

    def slice(self, start: int, stop: int) -> Run:
        """The rows from `start` up to, not including, `stop`. No copy."""
        if start == 0 and stop == len(self):
            return self
        return Run(self.rows.slice(start, stop - start), self.layout, self.hold)

    def clip_to(self, keys: KeyRange) -> Run:
        """The rows whose routing key is in a range. No copy."""
        start = int(np.searchsorted(self.keys, np.uint64(keys.first), side="left"))
        stop = int(np.searchsorted(self.keys, np.uint64(keys.last), side="right"))
        return self.slice(start, stop)

    def _numbers(self, name: str) -> np.ndarray:
        chunks = [chunk.to_numpy(zero_copy_only=True) for chunk in self.rows.column(name).chunks]
        return chunks[0] if len(chunks) == 1 else np.concatenate([_NO_NUMBERS, *chunks])


_NO_NUMBERS = np.empty(0, dtype=np.uint64)
# A row without a time never expires.
_NEVER_US = np.iinfo(np.int64).max
