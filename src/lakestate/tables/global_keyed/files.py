"""The data files of global keyed tables: two binary columns, a null value for a removal.

Only `live_entries` decodes values; everything else works on bytes, because merging files needs no
types. Files are verified before they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakestate.errors import RESTORE_OR_GO_BACK, CorruptionError
from lakestate.protocol.metadata import TableConfig
from lakestate.protocol.values import Epoch, FileRef
from lakestate.tables.arrow.value_limits import VALUE_BYTES_MAX
from lakestate.tables.context import TableContext
from lakestate.tables.data_files import write_data_file
from lakestate.tables.global_keyed.value_codec import EntryCodec
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs.parquet import decode_run

SCHEMA = pa.schema([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary())])


@dataclass(frozen=True, slots=True)
class StoredEntries:
    """The entries of one file, each key once. A value of None means that the key is removed."""

    keys: list[bytes]
    values: list[bytes | None]
    state_version: int
    shown: str


def newest_first(files: Sequence[FileRef]) -> tuple[FileRef, ...]:
    """Files in order of precedence: a later (epoch, subtask) hides an earlier one.

    Files of one epoch and subtask stay in the given order, in which the newest comes first. Their names
    are random and say nothing.
    """
    unique = {file.path: file for file in files}.values()
    return tuple(sorted(unique, key=lambda file: (file.epoch, file.subtask_index), reverse=True))


def entry_rows(keys: Sequence[bytes], values: Sequence[bytes | None]) -> pa.Table:
    """Entries as rows, in the order they were written: the whole table is always read at once.

    >>> entry_rows([b"b", b"a"], [b"1", None]).to_pylist()
    [{'key': b'b', 'value': b'1'}, {'key': b'a', 'value': None}]
    """
    return pa.table([_chunk_items(keys), _chunk_items(values)], schema=SCHEMA)


def _chunk_items(items: Sequence[bytes | None]) -> pa.ChunkedArray:
    """An array in chunks, each small enough for Arrow's offsets."""
    chunks, start, size = [], 0, 0
    for place, item in enumerate(items):
        length = 0 if item is None else len(item)
        if size + length > VALUE_BYTES_MAX and place > start:
            chunks.append(pa.array(items[start:place], pa.binary()))
            start, size = place, 0
        size += length
    chunks.append(pa.array(items[start:], pa.binary()))
    return pa.chunked_array(chunks, pa.binary())


def write_entries(
    rows: pa.Table, config: TableConfig, context: TableContext, epoch: Epoch, subtask_index: int
) -> FileRef:
    """Store rows as a new data file."""
    removed_count = rows.column("value").null_count
    return write_data_file(
        rows, config, context, epoch, subtask_index=subtask_index, removed_count=removed_count
    )


def read_entries(
    files: Sequence[FileRef], config: TableConfig, context: TableContext
) -> Iterator[StoredEntries]:
    """The entries of files, in their order. All files are fetched in parallel."""
    found = context.objects.read_many_verified([file.object_ref for file in files])
    for file, data in zip(files, found, strict=True):
        shown = context.objects.url_of(file.path)
        rows = decode_run(pa.py_buffer(data), shown, file.row_count)
        identity = CheckpointParquetMetadata.from_key_values(rows.schema.metadata, shown)
        identity.check(config, shown)
        yield parse_entries(rows, identity, shown)


def parse_entries(rows: pa.Table, identity: CheckpointParquetMetadata, shown: str) -> StoredEntries:
    """The entries of a file's rows, or CorruptionError if they are not such entries."""
    if not rows.schema.remove_metadata().equals(SCHEMA):
        found = ", ".join(f"{field.name} {field.type}" for field in rows.schema)
        raise _corrupt(identity, shown, found, "key binary not null, value binary")
    keys = rows.column("key").to_pylist()
    if len(set(keys)) != len(keys):
        raise _corrupt(identity, shown, "a key twice", "every key once")
    return StoredEntries(keys, rows.column("value").to_pylist(), identity.state_version, shown)


def live_entries(
    files: Sequence[FileRef], config: TableConfig, codec: EntryCodec, context: TableContext
) -> dict[Any, Any]:
    """The live entries of the files of all subtasks together. Hidden values are not decoded."""
    entries: dict[Any, Any] = {}
    hidden: set[bytes] = set()
    for stored in read_entries(newest_first(files), config, context):
        live = [
            (key, value)
            for key, value in zip(stored.keys, stored.values, strict=True)
            if value is not None and key not in hidden
        ]
        hidden.update(stored.keys)
        keys = codec.decode_keys([key for key, _ in live], stored.shown)
        raw = [value for _, value in live]
        values = codec.decode_values(raw, keys, stored.state_version, stored.shown)
        entries.update(zip(keys, values, strict=True))
    return entries


def _corrupt(identity: CheckpointParquetMetadata, shown: str, found: str, expected: str) -> CorruptionError:
    return CorruptionError(
        f"data file of table {identity.table} does not hold entries",
        object_name=shown,
        found=found,
        expected=expected,
        action=RESTORE_OR_GO_BACK,
    )
