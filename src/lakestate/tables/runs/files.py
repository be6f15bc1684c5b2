"""Runs between memory, the object store and the run cache.

Writing returns a `FileRef` with everything that a reader needs to verify the file, whole or by row
group. Opening returns a memory-mapped `Run`, from the cache or rebuilt from Parquet.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from lakestate.errors import LakestateError, StorageUnavailableError
from lakestate.observability.time_parts import FETCH, timed
from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.values import Block, Epoch, FileRef, TimeRange
from lakestate.storage.cache.run_cache import CachedFile, RunCache
from lakestate.tables.arrow.wide_text import widen_text
from lakestate.tables.context import TableContext
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs.decode import decode_hashed_run
from lakestate.tables.runs.hashes import add_hashes
from lakestate.tables.runs.layout import RunLayout
from lakestate.tables.runs.parquet import (
    encode_run,
    footer_with_checksums,
    has_column_checksums,
    row_group_bounds,
    row_groups,
)
from lakestate.tables.runs.partial_read import read_blocks, read_columns, read_whole, wanted_blocks
from lakestate.tables.runs.run import Run
from lakestate.tables.writers import writers

Upgrade = Callable[[pa.Table, CheckpointParquetMetadata, str], pa.Table]
"""Brings the rows of a file of any older state version into the current layout."""

_log = logging.getLogger("lakestate.cache")

_MapKey = tuple[Path, tuple[int, int, int], object, object]
"""The path of a file, the identity of its content when it was mapped, and the layout it is read with."""
MAPS_MAX = 64
_MAPS: OrderedDict[_MapKey, Run] = OrderedDict()
_MAPS_LOCK = threading.Lock()
_AS_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
_SOUND: set[tuple[int, int, int]] = set()
_SOUND_MAX = 10_000


def write_run(run: Run, context: TableContext, epoch: Epoch) -> FileRef:
    """Store a run as a new data file, and keep it in the cache."""
    layout = run.layout
    rows = run.rows.select(layout.stored_schema.names)
    key_values = CheckpointParquetMetadata.of(layout.config).to_key_values()
    data = add_column_checksums(encode_run(rows, key_values), rows.schema, key_values)
    streamed = RunSummary()
    for group in split_into_row_groups(run):
        streamed.add(group)
    file = store_run_bytes(data, streamed, layout, context, epoch)
    if context.cache is not None:
        _fill_cache(context.cache, _cache_key(file, layout, context), run.rows)
    return file


def add_column_checksums(data: pa.Buffer, schema: pa.Schema, key_values: Mapping[bytes, bytes]) -> pa.Buffer:
    """The bytes of a file, with the checksums of its column chunks in the footer if it is large."""
    if not has_column_checksums(data.size):
        return data
    start, footer = footer_with_checksums(data, schema, key_values)
    whole = pa.BufferOutputStream()
    whole.write(data.slice(0, start))
    whole.write(footer)
    return whole.getvalue()


def split_into_row_groups(run: Run) -> Iterator[Run]:
    """The run in the pieces that become the row groups of its file."""
    for start, stop in row_group_bounds(run.rows):
        yield run.slice(start, stop)


class RunSummary:
    """What a file reference says about the row groups of a run."""

    def __init__(self) -> None:
        self.group_keys: list[KeyRange] = []
        self.row_count = 0
        self.removed_count = 0
        self.times: TimeRange | None = None

    def add(self, group: Run) -> None:
        """Add the next row group."""
        self.group_keys.append(KeyRange(int(group.keys[0]), int(group.keys[-1])))
        self.row_count += len(group)
        self.removed_count += 0 if group.removed is None else int(group.removed.sum())
        self.times = _time_union(self.times, _time_range(group))


def store_run_bytes(
    data: pa.Buffer, streamed: RunSummary, layout: RunLayout, context: TableContext, epoch: Epoch
) -> FileRef:
    """Upload the Parquet bytes of a run under a unique name."""
    task, config = context.task, layout.config
    path = context.objects.paths.data(
        epoch, task.operator_id, config.name, task.subtask_index, context.ambient.new_id()
    )
    blocks = _blocks(data, streamed.group_keys)
    file = FileRef(
        path=path,
        size_bytes=data.size,
        checksum=xxhash.xxh3_64_intdigest(data),
        row_count=streamed.row_count,
        epoch=epoch,
        generation=task.generation,
        subtask_index=task.subtask_index,
        state_version=config.state_version,
        schema_fingerprint=config.schema_fingerprint,
        keys=KeyRange(streamed.group_keys[0].first, streamed.group_keys[-1].last),
        times=streamed.times,
        removed_count=streamed.removed_count,
        valid_keys=task.key_range,
        blocks=blocks,
        footer_checksum=_footer_checksum(data, blocks),
    )
    context.objects.put_verified(file.object_ref, memoryview(data).cast("B"))
    return file


@timed(FETCH)
def open_run(
    file: FileRef,
    layout: RunLayout,
    context: TableContext,
    upgrade: Upgrade | None = None,
    names: Collection[str] | None = None,
) -> Run:
    """The rows of a file that are valid for the holder of the reference.

    With `names`, only these value columns are needed, and the run may lack others. It has all of them
    if they are in the cache, or if the file is too small, or of a version that must be migrated whole.
    Raises CorruptionError naming the file if it is missing, damaged, or belongs to another table.
    """
    cache = context.cache if _is_cacheable(file, layout, context) else None
    layouts = _layouts_to_try(file, layout, names)
    keys = {_cache_key(file, each, context): each for each in layouts}
    held = {} if cache is None else {key: found for key in keys if (found := _find_cached(cache, key))}
    for key, cached in held.items():
        if (known := _map_cached(cached, keys[key])) is not None:
            return known.clip_to(file.valid_keys)
    run = _fetch_run(file, layouts, context, upgrade)
    if cache is not None and not held:
        writers().submit(_fill_cache, cache, _cache_key(file, run.layout, context), run.rows)
    return run.clip_to(file.valid_keys)


def find_run(file: FileRef, layout: RunLayout, context: TableContext) -> Run | None:
    """Like `open_run`, but None if this host's cache does not have the file."""
    if context.cache is None or not _is_cacheable(file, layout, context):
        return None
    cached = _find_cached(context.cache, _cache_key(file, layout, context))
    run = None if cached is None else _map_cached(cached, layout)
    return None if run is None else run.clip_to(file.valid_keys)


def forget_runs(files: Sequence[FileRef], layout: RunLayout, context: TableContext) -> None:
    """Remove runs from the cache. What is in use stays, and a failure does not matter.

    Of a file with row groups that can be fetched alone, any of them and any columns may be cached.
    """
    if context.cache is None:
        return
    try:
        context.cache.discard([_cache_key(file, layout, context) for file in files if not file.blocks])
        if divisible := [_cache_group(file, context) for file in files if file.blocks]:
            context.cache.discard_groups(divisible)
    except (LakestateError, OSError) as cause:
        _log.warning("runs that no epoch needs stay in the cache for now: %s", cause)


def _layouts_to_try(file: FileRef, layout: RunLayout, names: Collection[str] | None) -> list[RunLayout]:
    """The layouts in which a run can be opened: all columns, and then only the needed ones if they can
    be fetched alone. A migration needs all."""
    part = layout.for_values(names)
    is_divisible = file.blocks and has_column_checksums(file.size_bytes)
    if part is layout or not is_divisible or _is_migrated(file, layout) or _has_other_columns(file, layout):
        return [layout]
    return [layout, part]


def _find_cached(cache: RunCache, key: str) -> CachedFile | None:
    try:
        return cache.find(key)
    except (StorageUnavailableError, OSError) as cause:
        _log.warning("the cache cannot be used; a run is fetched again: %s", cause)
        return None


def _fill_cache(cache: RunCache, key: str, rows: pa.Table) -> None:
    """Fill the cache. A failure does not fail the epoch: the rows are stored, or were fetched."""
    try:
        cache.open(key, _cache_writer(rows)).close()
    except (LakestateError, OSError) as cause:
        _log.warning("a run is not kept in the cache and will be fetched again: %s", cause)


def _map_cached(cached: CachedFile, layout: RunLayout) -> Run | None:
    """The run in a cached file. Maps stay open for a while, so that the next epoch finds its pages.

    None if the file is not such a run, whatever its record says: the cache never fails a job.
    """
    key: _MapKey = (cached.path, cached.identity, layout.config, layout.hash)
    with _MAPS_LOCK:
        if key in _MAPS:
            _MAPS.move_to_end(key)
        else:
            _drop_evicted()
            try:
                _MAPS[key] = Run(_sound_rows(cached, layout), layout).build_index()
            except (pa.ArrowException, OSError, ValueError) as cause:
                _log.warning("a cached run cannot be read and is fetched again: %s: %s", cached.path, cause)
                return None
        if len(_MAPS) > MAPS_MAX:
            _MAPS.popitem(last=False)
        return _MAPS[key].with_hold(cached)


def _drop_evicted() -> None:
    """Close maps of files that the cache has removed or replaced, which frees their disk space."""
    for key in list(_MAPS):
        path, identity, *_ = key
        try:
            found = path.stat()
            is_there = (found.st_dev, found.st_ino) == identity[:2]
        except OSError:
            is_there = False
        if not is_there:
            del _MAPS[key]


def _sound_rows(cached: CachedFile, layout: RunLayout) -> pa.Table:
    """The rows of a cached file, whose buffers are validated once in this process.

    Native code would follow an offset that points outside its buffer.
    """
    rows = pa.ipc.open_file(cached.memory_map()).read_all()
    if rows.schema.names != layout.schema.names:
        raise ValueError(f"columns {rows.schema.names}")
    if cached.identity not in _SOUND:
        for chunk in (chunk for column in rows.columns for chunk in column.chunks):
            # Validate text as bytes: Spark's may be invalid UTF-8, which is harmless here.
            as_bytes = _AS_BYTES.get(chunk.type)
            (chunk if as_bytes is None else chunk.view(as_bytes)).validate(full=True)
        if len(_SOUND) >= _SOUND_MAX:
            _SOUND.clear()
        _SOUND.add(cached.identity)
    return rows


def _fetch_run(
    file: FileRef, layouts: Sequence[RunLayout], context: TableContext, upgrade: Upgrade | None
) -> Run:
    """The run in the last layout if its columns can be fetched alone, and otherwise in the first."""
    whole, part = layouts[0], layouts[-1]
    if part is not whole:
        groups = wanted_blocks(file) or range(len(file.blocks))
        found = read_columns(file, groups, part.stored_schema.names, context.objects)
        if found is not None:
            rows, metadata = found
            shown = context.objects.url_of(file.path)
            CheckpointParquetMetadata.from_key_values(metadata, shown).check(part.config, shown)
            return Run(require_layout(add_hashes(rows, part, shown), part, shown), part)
    return Run(_fetch_rows(file, whole, context, upgrade), whole)


def _fetch_rows(file: FileRef, layout: RunLayout, context: TableContext, upgrade: Upgrade | None) -> pa.Table:
    shown = context.objects.url_of(file.path)
    blocks = wanted_blocks(file)
    if blocks:
        rows, metadata = read_blocks(file, blocks, context.objects)
        identity = CheckpointParquetMetadata.from_key_values(metadata, shown)
        identity.check(layout.config, shown)
        rows = add_hashes(rows, layout, shown)
    else:
        data = read_whole(file, context.objects)
        rows, identity = decode_hashed_run(data, layout, shown, file.row_count)
    if upgrade is not None:
        rows = upgrade(rows, identity, shown)
    return require_layout(rows, layout, shown)


def require_layout(rows: pa.Table, layout: RunLayout, shown: str) -> pa.Table:
    """The rows in exactly the layout's columns, or an error naming the file."""
    if rows.schema.names != layout.schema.names or rows.schema.types != layout.schema.types:
        raise layout.mismatch(rows.schema, shown)
    return rows


def _blocks(data: pa.Buffer, group_keys: Sequence[KeyRange]) -> tuple[Block, ...]:
    """What is needed to read and verify a part of the file. Empty for a small file of one row group."""
    if len(group_keys) < 2 and not has_column_checksums(data.size):
        return ()
    groups = row_groups(pq.read_metadata(pa.BufferReader(data)))
    return tuple(
        Block(
            start=group.start,
            length=group.length,
            row_count=group.row_count,
            keys=keys,
            checksum=xxhash.xxh3_64_intdigest(data.slice(group.start, group.length)),
        )
        for group, keys in zip(groups, group_keys, strict=True)
    )


def _footer_checksum(data: pa.Buffer, blocks: Sequence[Block]) -> int:
    if not blocks:
        return 0
    return xxhash.xxh3_64_intdigest(data.slice(blocks[-1].start + blocks[-1].length))


def _time_union(one: TimeRange | None, other: TimeRange | None) -> TimeRange | None:
    if one is None or other is None:
        return one or other
    return TimeRange(min(one.first_us, other.first_us), max(one.last_us, other.last_us))


def _time_range(run: Run) -> TimeRange | None:
    times = run.times_us
    if times is None or not len(times):
        return None
    return TimeRange(int(np.min(times)), int(np.max(times)))


def _cache_key(file: FileRef, layout: RunLayout, context: TableContext) -> str:
    """Identifies the content: the file, the part of it, its columns, and the code that migrated it.

    The result of a migration is kept for one generation only: the next start of the job may have
    corrected the migration.
    """
    blocks = wanted_blocks(file)
    part = f"{blocks[0]}-{blocks[-1]}" if blocks else "all"
    by = f"v{file.state_version}g{context.task.generation}" if _is_migrated(file, layout) else "as-stored"
    return f"{_cache_group(file, context)}#{part}:{layout.fingerprint}:{by}"


def _cache_group(file: FileRef, context: TableContext) -> str:
    """What the cache keys of all parts of a file have in common."""
    return f"{context.objects.url_of(file.path)}@{file.checksum:016x}"


def _is_cacheable(file: FileRef, layout: RunLayout, context: TableContext) -> bool:
    """False if the cache might return what a migration of another start of the job produced.

    A driver that has claimed a generation has a higher one than every writer of an older version.
    Code that opens tables without a claim has the same generation each time, and migrates again.
    """
    return not _is_migrated(file, layout) or file.generation < context.task.generation


def _is_migrated(file: FileRef, layout: RunLayout) -> bool:
    return file.state_version != layout.config.state_version


def _has_other_columns(file: FileRef, layout: RunLayout) -> bool:
    """True for a file from before columns were added, removed or widened within its state version."""
    return layout.config.evolves and file.schema_fingerprint != layout.config.schema_fingerprint


def _cache_writer(rows: pa.Table) -> Callable[[Path], None]:
    return lambda path: _write_arrow_file(path, rows)


def _write_arrow_file(path: Path, rows: pa.Table) -> None:
    rows = _single_chunk(rows)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)


def _single_chunk(rows: pa.Table) -> pa.Table:
    """One chunk per column: taking rows across chunks is many times slower."""
    return widen_text(rows).combine_chunks()
