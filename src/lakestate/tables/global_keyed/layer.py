"""A layer: entries sorted by the hash of their key, each key once, ready to be searched.

What one or several data files hold, in one Arrow record batch: on the heap right after it was built, in a
memory map when it comes from the run cache. Nothing here decodes keys or values, and nothing does I/O.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from lakestate.tables.arrow.wide_text import one_array
from lakestate.tables.hashing.routing import SPARK_SEED, routing_keys

SCHEMA = pa.schema(
    [
        pa.field("hash", pa.uint64(), nullable=False),
        # The place of the data file that the entry comes from, in the order of precedence.
        pa.field("source", pa.uint32(), nullable=False),
        pa.field("key", pa.large_binary(), nullable=False),
        # Null if the key is removed: it hides the key in older layers.
        pa.field("value", pa.large_binary()),
    ]
)
ABSENT = -1


def hash_key(key: bytes) -> int:
    """The hash of one encoded key."""
    return xxhash.xxh64_intdigest(key, SPARK_SEED)


def hash_keys(keys: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """The hashes of many encoded keys.

    >>> hash_keys(pa.array([b"a"])).tolist() == [hash_key(b"a")]
    True
    """
    return routing_keys([keys])


@dataclass(frozen=True)
class Layer:
    """Entries of one or several data files of a table."""

    rows: pa.RecordBatch
    hold: object = None
    """Keeps the file of the rows in the cache while this layer is in use."""

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @cached_property
    def hashes(self) -> np.ndarray:
        """The hashes of the keys, ascending."""
        hashes: np.ndarray = self.rows.column("hash").to_numpy()
        return hashes

    @cached_property
    def keys(self) -> pa.Array:
        """The encoded keys."""
        return self.rows.column("key")

    @cached_property
    def values(self) -> pa.Array:
        """The encoded values; null for a removed key."""
        return self.rows.column("value")

    @property
    def live_count(self) -> int:
        """The number of keys that are not removed."""
        return len(self) - int(self.values.null_count)

    def find(self, key: bytes, hash_: int) -> int:
        """Where a key is, or ABSENT."""
        hashes = self._numbers
        place = bisect_left(hashes, hash_)
        while place < len(hashes) and hashes[place] == hash_:
            if self.keys[place].as_py() == key:
                return place
            # Another key has this hash; the right one may be in the next row.
            place += 1
        return ABSENT

    def source(self, place: int) -> int:
        """The place of the file that an entry comes from."""
        return int(self.rows.column("source")[place].as_py())

    @cached_property
    def _numbers(self) -> memoryview:
        # For one key, bisecting Python integers is faster than calling NumPy.
        return self.hashes.data


def layer_of(keys: pa.ChunkedArray, values: pa.ChunkedArray, source: int = 0) -> Layer:
    """The entries of one data file, sorted.

    A key that is there twice stays there twice: see `has_a_key_twice`.

    >>> layer = layer_of(pa.chunked_array([[b"b", b"a"]]), pa.chunked_array([[b"1", None]]))
    >>> place = layer.find(b"b", hash_key(b"b"))
    >>> layer.values[place].as_py(), layer.find(b"c", hash_key(b"c")), layer.live_count
    (b'1', -1, 1)
    """
    hashes = hash_keys(keys)
    order = pa.array(np.argsort(hashes, kind="stable"))
    columns = [
        pa.array(hashes).take(order),
        pa.array(np.full(len(hashes), source, dtype=np.uint32)),
        *(one_array(column.cast(pa.large_binary())).take(order) for column in (keys, values)),
    ]
    return Layer(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


def has_a_key_twice(layer: Layer) -> bool:
    """Whether a key is in a layer more than once."""
    return len(_first_of_each_key(layer.hashes, layer.keys)) < len(layer)


def last_of_each_key(rows: pa.Table) -> pa.Table | None:
    """Entries, in any order, without those whose key comes again. None if they are too large for that.

    >>> rows = pa.table({"key": [b"a", b"b", b"a"], "value": [b"1", b"2", b"3"]})
    >>> last_of_each_key(rows).to_pylist()
    [{'key': b'b', 'value': b'2'}, {'key': b'a', 'value': b'3'}]
    """
    hashes = hash_keys(rows.column("key"))
    ordered = np.sort(hashes)
    if not np.any(ordered[1:] == ordered[:-1]):
        return rows
    if any(column.num_chunks > 1 for column in rows.columns):
        return None
    last = len(rows) - 1
    keys = rows.column("key").chunk(0).take(pa.array(np.arange(last, -1, -1)))
    return rows.take(pa.array(np.sort(last - _first_of_each_key(hashes[::-1], keys))))


def merge_layers(layers: Sequence[Layer], file_counts: Sequence[int]) -> Layer:
    """One layer of several, newest first: the newest entry of each key, removed ones included.

    `file_counts` says of how many files each of them is made.
    """
    if len(layers) == 1:
        return layers[0]
    starts = accumulate(file_counts[:-1], initial=0)
    rows = pa.concat_batches(
        [_shift_sources(layer.rows, start) for layer, start in zip(layers, starts, strict=True)]
    )
    winners = _first_of_each_key(rows.column("hash").to_numpy(), rows.column("key"))
    return Layer(rows.take(pa.array(winners)))


def count_live(layers: Sequence[Layer]) -> int:
    """The number of keys that are there in layers, newest first. Only keys of newer layers are looked up."""
    count, newer = 0, None
    for index, layer in enumerate(layers):
        count += layer.live_count
        if newer is not None:
            hidden = _places(layer, newer)
            count -= int(layer.values.take(pa.array(hidden[hidden != ABSENT])).is_valid().sum().as_py() or 0)
        if index < len(layers) - 1:
            newer = layer if newer is None else merge_layers([newer, layer], [1, 1])
    return count


def _shift_sources(rows: pa.RecordBatch, start: int) -> pa.RecordBatch:
    if start == 0:
        return rows
    shifted = pc.add(rows.column("source"), pa.scalar(start, pa.uint32()))
    return rows.set_column(1, SCHEMA.field("source"), shifted)


def _first_of_each_key(hashes: np.ndarray, keys: pa.Array) -> np.ndarray:
    """The first row of each key, in order of the hashes."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    same = np.flatnonzero(ordered[1:] == ordered[:-1])
    if not len(same):
        return order
    equal = pc.equal(keys.take(pa.array(order[same])), keys.take(pa.array(order[same + 1])))
    if equal.false_count == 0:
        return np.delete(order, same + 1)
    return np.delete(order, _repeated(np.union1d(same, same + 1), order, keys))


def _repeated(places: np.ndarray, order: np.ndarray, keys: pa.Array) -> list[int]:
    """Those of the places whose key was there before. For different keys of one hash, which are rare."""
    seen: set[bytes] = set()
    repeated = []
    for place in places:
        key = keys[int(order[place])].as_py()
        if key in seen:
            repeated.append(int(place))
        seen.add(key)
    return repeated


def _places(layer: Layer, wanted: Layer) -> np.ndarray:
    """Where the keys of another layer are, or ABSENT."""
    places = np.searchsorted(layer.hashes, wanted.hashes)
    inside = np.minimum(places, len(layer) - 1)
    same = (layer.hashes[inside] == wanted.hashes) & (places < len(layer))
    found = np.where(same, places, ABSENT)
    rows = np.flatnonzero(same)
    equal = pc.equal(layer.keys.take(pa.array(places[rows])), wanted.keys.take(pa.array(rows)))
    for row in rows[~equal.to_numpy(zero_copy_only=False)]:
        found[row] = layer.find(wanted.keys[int(row)].as_py(), int(wanted.hashes[row]))
    return found
