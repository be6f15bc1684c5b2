"""Reading what is stored: single entries by their key, or all of them.

With a run cache, a lookup searches a few memory-mapped layers and decodes the one value that it returns.
Without one, and for whoever reads a good part of the table, all entries are decoded into a dict.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import CorruptionError
from lakestate.protocol.metadata import TableConfig
from lakestate.protocol.values import FileRef
from lakestate.storage.cache.run_cache import RunCache
from lakestate.tables.context import TableContext
from lakestate.tables.global_keyed.files import live_entries
from lakestate.tables.global_keyed.layer import ABSENT, Layer, count_live, hash_key, merge_layers
from lakestate.tables.global_keyed.layer_cache import LayerCache
from lakestate.tables.global_keyed.layer_plan import plan_layers
from lakestate.tables.global_keyed.value_codec import EntryCodec

MISSING: Any = object()
"""What a lookup returns if a key has no value: None is a value."""

ENTRIES_PER_LOOKUP = 8
"""Looking up one entry takes as long as decoding this many of all entries."""

_OpenLayer = tuple[Layer, tuple[FileRef, ...]]


class EntryReader:
    """The entries in the files of all subtasks, newest first. Nothing is read until it is needed."""

    def __init__(
        self, files: Sequence[FileRef], config: TableConfig, codec: EntryCodec, context: TableContext
    ) -> None:
        self._files = files
        self._config = config
        self._codec = codec
        self._context = context
        self._known: dict[Any, Any] = {}
        """The entries that are decoded, all of them once `_knows_all`."""
        self._knows_all = not files
        self._layers: list[_OpenLayer] | None = None
        self._lookups_left = 0

    def find(self, key: Any) -> Any:
        """The value of a key, or MISSING."""
        found = self._known.get(key, MISSING)
        if found is not MISSING or self._knows_all:
            return found
        encoded = self._bytes_to_search(key)
        if encoded is None:
            return self.load().get(key, MISSING)
        stored = self._search(encoded)
        if stored is None:
            return MISSING
        value, file = stored
        decoded = self._codec.decode_values([value], [key], file.state_version, self._shown(file))
        return self._known.setdefault(key, decoded[0])

    def contains(self, key: Any) -> bool:
        """Whether a key has a value, which is not decoded."""
        if self._knows_all or key in self._known:
            return key in self._known
        encoded = self._bytes_to_search(key)
        return key in self.load() if encoded is None else self._search(encoded) is not None

    def count(self) -> int:
        """The number of entries. With a cache, none of them is decoded."""
        cache = self._context.cache
        if self._knows_all or cache is None:
            return len(self.load())
        return count_live([layer for layer, _ in self._open_layers(cache)])

    def load(self) -> dict[Any, Any]:
        """All entries. The dict is the reader's own."""
        if not self._knows_all:
            # A value that was handed out stays the same object.
            self._known = {**self._decode_all(), **self._known}
            self._knows_all, self._layers = True, None
        return self._known

    def fetch(self) -> None:
        """Make reading independent of the store."""
        if self._context.cache is None:
            self.load()
        elif not self._knows_all:
            self._open_layers(self._context.cache)

    def _bytes_to_search(self, key: Any) -> bytes | None:
        """The bytes of a key to search for, or None if it is better to decode all entries."""
        if self._context.cache is None:
            return None
        self._open_layers(self._context.cache)
        self._lookups_left -= 1
        return None if self._lookups_left < 0 else self._codec.find_bytes(key)

    def _search(self, key: bytes) -> tuple[bytes, FileRef] | None:
        """The newest value of a key and the file that it is from; None if there is none, or it is removed."""
        hash_ = hash_key(key)
        for layer, files in self._layers or ():
            place = layer.find(key, hash_)
            if place != ABSENT:
                value = layer.values[place].as_py()
                return None if value is None else (value, files[layer.source(place)])
        return None

    def _open_layers(self, cache: RunCache) -> list[_OpenLayer]:
        if self._layers is None:
            for file in {file.state_version: file for file in self._files}.values():
                self._codec.check_version(file.state_version, self._shown(file))
            planned = plan_layers(self._files)
            found = LayerCache(cache, self._config, self._codec, self._context).open_all(planned)
            self._layers = list(zip(found, (layer.files for layer in planned), strict=True))
            self._lookups_left = sum(len(layer) for layer, _ in self._layers) // ENTRIES_PER_LOOKUP
        return self._layers

    def _decode_all(self) -> dict[Any, Any]:
        if self._context.cache is None:
            return live_entries(self._files, self._config, self._codec, self._context)
        layers = self._open_layers(self._context.cache)
        merged = merge_layers([layer for layer, _ in layers], [len(files) for _, files in layers])
        files = list(chain.from_iterable(files for _, files in layers))
        rows = merged.rows.filter(pc.is_valid(merged.values))
        sources = rows.column("source").to_numpy()
        versions = np.array([file.state_version for file in files])[sources]
        entries: dict[Any, Any] = {}
        for version in np.unique(versions):
            is_of_version = versions == version
            entries.update(self._decode(rows.filter(pa.array(is_of_version)), sources[is_of_version], files))
        return entries

    def _decode(self, rows: pa.RecordBatch, sources: np.ndarray, files: Sequence[FileRef]) -> dict[Any, Any]:
        """Entries of one state version."""
        try:
            return self._decode_of_file(rows, files[sources[0]])
        except CorruptionError:
            # Which file is damaged shows if they are decoded one by one.
            for source in np.unique(sources):
                self._decode_of_file(rows.filter(pa.array(sources == source)), files[source])
            raise

    def _decode_of_file(self, rows: pa.RecordBatch, file: FileRef) -> dict[Any, Any]:
        shown = self._shown(file)
        keys = self._codec.decode_keys(rows.column("key").to_pylist(), shown)
        values = self._codec.decode_values(rows.column("value").to_pylist(), keys, file.state_version, shown)
        return dict(zip(keys, values, strict=True))

    def _shown(self, file: FileRef) -> str:
        return self._context.objects.url_of(file.path)
