"""Layers between data files and the run cache: found there, or built and kept there.

A cache entry is named after its files. It holds keys and values as they are stored, whatever their state
version, and so is valid as long as the files are. The cache never fails a job: a layer that cannot be
kept is used from memory.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from lakestate.errors import LakestateError, StorageUnavailableError
from lakestate.protocol.metadata import TableConfig
from lakestate.protocol.values import FileRef
from lakestate.storage.cache.run_cache import CachedFile, RunCache
from lakestate.tables.context import TableContext
from lakestate.tables.global_keyed.files import read_layers
from lakestate.tables.global_keyed.layer import SCHEMA, Layer, layer_of, merge_layers
from lakestate.tables.global_keyed.layer_plan import PlannedLayer
from lakestate.tables.global_keyed.value_codec import EntryCodec

_log = logging.getLogger("lakestate.cache")

COPIED_BYTES_MAX = 256 * 1024
"""Smaller layers are read and closed: each subtask of the last epoch may have left one."""

_SOUND: set[tuple[int, int, int]] = set()
"""The cached files whose buffers this process has validated."""
_SOUND_MAX = 10_000


@dataclass(frozen=True, slots=True)
class _Piece:
    """Files, and their layer if it is cached."""

    files: tuple[FileRef, ...]
    layer: Layer | None = None


@dataclass(frozen=True)
class LayerCache:
    """The layers of one table on this host."""

    cache: RunCache
    config: TableConfig
    codec: EntryCodec
    context: TableContext

    def open_all(self, planned: Sequence[PlannedLayer]) -> list[Layer]:
        """The layers of a plan.

        Raises CorruptionError naming the file if one is missing, damaged, or belongs to another table.
        """
        known = [self._find(layer.files) for layer in planned]
        if None not in known:
            return [layer for layer in known if layer is not None]
        layers = [
            self._build(one) if found is None else found for one, found in zip(planned, known, strict=True)
        ]
        self._keep_only(planned)
        return layers

    def _build(self, planned: PlannedLayer) -> Layer:
        # Before the cache is locked: the builder of another layer may wait for this one.
        pieces = [piece for part in planned.parts for piece in self._cached_pieces(part)]
        layer = self._build_once(planned.files, lambda: self._merge_pieces(pieces or [_Piece(planned.files)]))
        _discard(self.cache, [self._key(piece.files) for piece in pieces if piece.layer is not None])
        return layer

    def _cached_pieces(self, planned: PlannedLayer) -> list[_Piece]:
        """What is cached of a layer, newest first, and the files of the rest."""
        layer = self._find(planned.files)
        if layer is not None or len(planned.files) == 1:
            return [_Piece(planned.files, layer)]
        return [piece for part in planned.parts for piece in self._cached_pieces(part)]

    def _merge_pieces(self, pieces: Sequence[_Piece]) -> Layer:
        missing = [piece.files[0] for piece in pieces if piece.layer is None]
        fetched = read_layers(missing, self.config, self.codec, self.context)
        layers = [next(fetched) if piece.layer is None else piece.layer for piece in pieces]
        return merge_layers(layers, [len(piece.files) for piece in pieces])

    def _build_once(self, files: Sequence[FileRef], build: Callable[[], Layer]) -> Layer:
        """Build a layer and keep it, while other processes that need it wait."""
        built: list[Layer] = []
        failures: list[BaseException] = []

        def build_into(path: Path) -> None:
            try:
                built.append(build())
            except BaseException as error:
                failures.append(error)
                raise
            _write_layer(path, built[0])

        try:
            cached = self.cache.open(self._key(files), build_into)
        except (LakestateError, OSError) as cause:
            if failures:
                raise
            _log.warning("entries are not kept in the cache and will be fetched again: %s", cause)
            return built[0] if built else build()
        # If another process has built it meanwhile, nothing was built here.
        return built[0] if built else _open_cached(cached, len(files)) or build()

    def _find(self, files: Sequence[FileRef]) -> Layer | None:
        try:
            cached = self.cache.find(self._key(files))
        except (StorageUnavailableError, OSError) as cause:
            _log.warning("the cache cannot be used; entries are fetched again: %s", cause)
            return None
        return None if cached is None else _open_cached(cached, len(files))

    def _keep_only(self, planned: Sequence[PlannedLayer]) -> None:
        """Remove the layers of earlier plans. A note in the cache says which there are.

        Processes may overwrite each other's notes: then a layer stays until the cache needs its room.
        """
        keys = [self._key(layer.files) for layer in planned]
        task, objects = self.context.task, self.context.objects
        note = f"{objects.url_of(task.operator_id)}/{self.config.name}#layers"
        try:
            found = self.cache.find(note)
            known = [] if found is None else found.memory_map().read().decode().split("\n")
            if found is not None:
                found.close()
            self.cache.discard([note, *(key for key in known if key not in keys)])
            self.cache.open(note, lambda path: _write_note(path, keys)).close()
        except (LakestateError, OSError, ValueError) as cause:
            _log.warning("entries that no epoch needs stay in the cache for now: %s", cause)

    def _key(self, files: Sequence[FileRef]) -> str:
        return _cache_key(files, self.config, self.context)


def keep_entries(rows: pa.Table, file: FileRef, config: TableConfig, context: TableContext) -> None:
    """Keep the entries of a file that was just written. A failure does not fail the epoch."""
    if context.cache is None:
        return
    layer = layer_of(rows.column("key"), rows.column("value"))
    key = _cache_key((file,), config, context)
    try:
        context.cache.open(key, lambda path: _write_layer(path, layer)).close()
    except (LakestateError, OSError) as cause:
        _log.warning("entries are not kept in the cache and will be fetched again: %s", cause)


def forget_entries(files: Sequence[FileRef], config: TableConfig, context: TableContext) -> None:
    """Remove the entries of single files from the cache. What is in use stays."""
    if context.cache is not None:
        _discard(context.cache, [_cache_key((file,), config, context) for file in files])


def _discard(cache: RunCache, keys: Sequence[str]) -> None:
    try:
        cache.discard(keys)
    except (LakestateError, OSError) as cause:
        _log.warning("entries that no epoch needs stay in the cache for now: %s", cause)


def _write_note(path: Path, keys: Sequence[str]) -> None:
    path.write_text("\n".join(keys))


def _open_cached(cached: CachedFile, file_count: int) -> Layer | None:
    """The layer in a cached file, or None if it is not such a layer, whatever its record says."""
    try:
        identity, source = cached.identity, cached.memory_map()
        is_small = cached.size_bytes <= COPIED_BYTES_MAX
        rows = pa.ipc.open_file(pa.py_buffer(source.read()) if is_small else source).get_batch(0)
        if identity not in _SOUND:
            _check_sound(rows, file_count)
            if len(_SOUND) >= _SOUND_MAX:
                _SOUND.clear()
            _SOUND.add(identity)
    except (pa.ArrowException, OSError, ValueError) as cause:
        _log.warning("cached entries cannot be read and are fetched again: %s: %s", cached.path, cause)
        return None
    if is_small:
        source.close()
        cached.close()
    return Layer(rows, None if is_small else cached)


def _check_sound(rows: pa.RecordBatch, file_count: int) -> None:
    """Native code would follow an offset that points outside its buffer."""
    if not rows.schema.equals(SCHEMA):
        raise ValueError(f"columns {rows.schema.names}")
    rows.validate(full=True)
    if not (pc.max(rows.column("source")).as_py() or 0) < file_count:
        raise ValueError("entries of unknown files")


def _cache_key(files: Sequence[FileRef], config: TableConfig, context: TableContext) -> str:
    """Identifies the content: the files, and how keys are encoded, by whose bytes they are searched."""
    # Checksums are enough: the name of the newest file is unique, and says which job and table it is.
    digest = xxhash.xxh3_128_hexdigest(array("Q", [file.checksum for file in files]).tobytes())
    keys = f"{config.key_columns[0].type}:msgspec-{msgspec.__version__}"
    return f"{context.objects.url_of(files[0].path)}@{digest}#entries:{keys}"


def _write_layer(path: Path, layer: Layer) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_batch(layer.rows)
