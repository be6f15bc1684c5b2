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
from lakestate.tables.context import TableContext
from lakestate.tables.data_files import write_data_file
from lakestate.tables.global_keyed.layer import Layer, has_a_key_twice, layer_of
from lakestate.tables.global_keyed.packing import pack_bytes
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


def entry_rows(keys: pa.ChunkedArray, values: pa.ChunkedArray) -> pa.Table:
    """Entries as rows, in the order they were written: the whole table is always read at once."""
    return pa.table([keys, values], schema=SCHEMA)


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
    for rows, identity, shown in _read_rows(files, config, context):
        yield parse_entries(rows, identity, shown)


def read_layers(
    files: Sequence[FileRef], config: TableConfig, codec: EntryCodec, context: TableContext
) -> Iterator[Layer]:
    """The entries of files as layers, in their order, with keys as they are encoded now.

    Every key is decoded: one that is not a key would never be found, nor be missed.
    """
    for rows, identity, shown in _read_rows(files, config, context):
        _check_columns(rows, identity, shown)
        keys = rows.column("key")
        stored = keys.to_pylist()
        canonical = codec.canonical_keys(stored, shown)
        if canonical != stored:
            keys = pack_bytes(canonical)
        layer = layer_of(keys, rows.column("value"))
        if has_a_key_twice(layer):
            raise _corrupt(identity, shown, "a key twice", "every key once")
        yield layer


def _read_rows(
    files: Sequence[FileRef], config: TableConfig, context: TableContext
) -> Iterator[tuple[pa.Table, CheckpointParquetMetadata, str]]:
    found = context.objects.read_many_verified([file.object_ref for file in files])
    for file, data in zip(files, found, strict=True):
        shown = context.objects.url_of(file.path)
        rows = decode_run(pa.py_buffer(data), shown, file.row_count)
        identity = CheckpointParquetMetadata.from_key_values(rows.schema.metadata, shown)
        identity.check(config, shown)
        yield rows, identity, shown


def _check_columns(rows: pa.Table, identity: CheckpointParquetMetadata, shown: str) -> None:
    if not rows.schema.remove_metadata().equals(SCHEMA):
        found = ", ".join(f"{field.name} {field.type}" for field in rows.schema)
        raise _corrupt(identity, shown, found, "key binary not null, value binary")


def parse_entries(rows: pa.Table, identity: CheckpointParquetMetadata, shown: str) -> StoredEntries:
    """The entries of a file's rows, or CorruptionError if they are not such entries."""
    _check_columns(rows, identity, shown)
    keys = rows.column("key").to_pylist()
    if len(set(keys)) != len(keys):
        raise _corrupt(identity, shown, "a key twice", "every key once")
    return StoredEntries(keys, rows.column("value").to_pylist(), identity.state_version, shown)


def live_entries(
    files: Sequence[FileRef], config: TableConfig, codec: EntryCodec, context: TableContext
) -> dict[Any, Any]:
    """The live entries of the files of all subtasks together. Hidden values are not decoded."""
    entries: dict[Any, Any] = {}
    seen: set[Any] = set()
    for stored in read_entries(newest_first(files), config, context):
        # Not by their bytes: an earlier version of the encoder may have chosen other forms.
        keys = codec.decode_keys(stored.keys, stored.shown)
        live = [
            (key, value)
            for key, value in zip(keys, stored.values, strict=True)
            if value is not None and key not in seen
        ]
        seen.update(keys)
        found, raw = [key for key, _ in live], [value for _, value in live]
        values = codec.decode_values(raw, found, stored.state_version, stored.shown)
        entries.update(zip(found, values, strict=True))
    return entries


def _corrupt(identity: CheckpointParquetMetadata, shown: str, found: str, expected: str) -> CorruptionError:
    return CorruptionError(
        f"data file of table {identity.table} does not hold entries",
        object_name=shown,
        found=found,
        expected=expected,
        action=RESTORE_OR_GO_BACK,
    )
