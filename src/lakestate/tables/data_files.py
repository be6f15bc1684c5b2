"""Data files as building blocks for table types: write rows, read them back, carry them, check them.

A table whose state is a list of Parquet files derives from `DataFileTable` and says only what its rows
mean. The types with an index of their own (`runs`) do more, and use parts of this.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pyarrow as pa
import xxhash

from lakestate.errors import CorruptionError, InvalidInputError
from lakestate.job.objects import JobObjects
from lakestate.protocol.key_ranges import ALL_KEYS, KeyRange
from lakestate.protocol.metadata import TableConfig, TableFiles
from lakestate.protocol.rescale import carries, clip_files
from lakestate.protocol.values import Epoch, FileRef, ObjectRef
from lakestate.storage.store import ByteRange
from lakestate.tables.context import TableContext
from lakestate.tables.contract import FinishedTable, Table
from lakestate.tables.hashing.routing import routing_keys
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs.ownership import check_written_keys
from lakestate.tables.runs.parquet import decode_run, encode_run
from lakestate.tables.writers import submit_write

STREAM_BYTES = 8 << 20
"""A large object is read in pieces of this size to take its checksum."""


class ContradictionError(CorruptionError):
    """An object is as it was written, and does not fit what refers to it."""


def write_data_file(
    rows: pa.Table,
    config: TableConfig,
    context: TableContext,
    epoch: Epoch,
    *,
    removed_count: int = 0,
    subtask_index: int | None = None,
) -> FileRef:
    """Store rows as a new data file, and return the reference to it.

    Rows of a table with routing columns must be the subtask's own: a row in the wrong subtask would be
    found today and lost by the next rescaling.
    """
    task = context.task
    index = task.subtask_index if subtask_index is None else subtask_index
    uid = context.ambient.new_id()
    data = encode_run(rows, CheckpointParquetMetadata.of(config).to_key_values())
    file = FileRef(
        path=context.objects.paths.data(epoch, task.operator_id, config.name, index, uid),
        size_bytes=data.size,
        checksum=xxhash.xxh3_64_intdigest(data),
        row_count=rows.num_rows,
        epoch=epoch,
        generation=task.generation,
        subtask_index=index,
        state_version=config.state_version,
        schema_fingerprint=config.schema_fingerprint,
        keys=_owned_key_range(rows, config, context),
        valid_keys=ALL_KEYS if config.table_type.is_replicated else task.key_range,
        removed_count=removed_count,
    )
    context.objects.put_verified(file.object_ref, memoryview(data).cast("B"))
    return file


def read_data_file(file: FileRef, config: TableConfig, context: TableContext) -> pa.Table:
    """The rows of a file that count for the holder of the reference, without the others.

    The bytes are verified first. After rescaling, two subtasks may refer to one file, each with the
    keys that it owns.
    """
    shown = context.objects.url_of(file.path)
    rows = decode_run(pa.py_buffer(context.objects.read_verified(file.object_ref)), shown, file.row_count)
    CheckpointParquetMetadata.from_key_values(rows.schema.metadata, shown).check(config, shown)
    if file.keys is None or file.valid_keys.contains(file.keys):
        return rows
    keys = row_routing_keys(rows, config)
    owned = (keys >= np.uint64(file.valid_keys.first)) & (keys <= np.uint64(file.valid_keys.last))
    return rows if owned.all() else rows.filter(pa.array(owned))


def row_routing_keys(rows: pa.Table, config: TableConfig) -> np.ndarray:
    """The routing key of each row, which decides which subtask owns it."""
    return routing_keys([rows.column(name) for name in config.routing_columns])


def _key_range(rows: pa.Table, config: TableConfig) -> KeyRange | None:
    if not config.routing_columns or not rows.num_rows:
        return None
    keys = row_routing_keys(rows, config)
    return KeyRange(int(keys.min()), int(keys.max()))


def _owned_key_range(rows: pa.Table, config: TableConfig, context: TableContext) -> KeyRange | None:
    if config.table_type.is_replicated:
        return None
    if not config.routing_columns:
        raise InvalidInputError(
            "a table that is not replicated needs routing columns",
            object_name=f"table {config.name}",
            found=f"type {config.table_type} without them",
            action="set TableConfig.routing_columns, or TableType(is_replicated=True)",
        )
    keys = _key_range(rows, config)
    if keys is not None:
        check_written_keys(keys, config.name, context.task)
    return keys


class DataFileCheckpointer:
    """Writes rows to data files in the background, in front of those that still count."""

    def __init__(
        self, config: TableConfig, epoch: Epoch, previous: TableFiles, context: TableContext
    ) -> None:
        self._config = config
        self._epoch = epoch
        self._previous = previous
        self._context = context
        self._writes: list[Future[FileRef]] = []

    def insert_data(self, rows: pa.Table) -> None:
        """Start storing rows. Nothing is stored for no rows."""
        if rows.num_rows:
            write = submit_write(write_data_file, rows, self._config, self._context, self._epoch)
            self._writes.append(write)

    def finish(self) -> FinishedTable:
        """Wait for the uploads. If one failed, its error is raised and the epoch is not stored."""
        written = tuple(write.result() for write in reversed(self._writes))
        files = replace(self._previous, files=(*written, *self._carried()))
        return FinishedTable(files, sum(file.size_bytes for file in written))

    def _carried(self) -> tuple[FileRef, ...]:
        """What this subtask, and no other, carries forward."""
        task = self._context.task
        if self._config.table_type.is_replicated:
            return tuple(file for file in self._previous.files if carries(task, file))
        return clip_files(self._previous.files, task.key_range)


class DataFileTable(Table):
    """A table whose state is a list of data files, newest first.

    What is left to a type: its `config`, how it comes from a stored one, its view, and, if files are
    to be merged, `compact_data`.
    """

    def epoch_checkpointer(
        self, epoch: Epoch, previous: TableFiles, context: TableContext
    ) -> DataFileCheckpointer:
        """Writes new files in front of the previous ones."""
        return DataFileCheckpointer(self.config, epoch, previous, context)

    def check_file(self, file: FileRef, context: TableContext) -> None:
        """Raise if a file cannot be read, or its keys are not those that its reference says."""
        rows = read_data_file(replace(file, valid_keys=ALL_KEYS), self.config, context)
        expect(
            None if self.table_type.is_replicated else _key_range(rows, self.config),
            file.keys,
            "a data file holds other keys than its reference says",
            context.objects.url_of(file.path),
        )


def check_checksum(ref: ObjectRef, objects: JobObjects) -> None:
    """Raise if a large object has other bytes than its reference says. It is read in pieces."""
    size = objects.store.head(objects.store_path(ref.path)).size_bytes
    if size != ref.size_bytes:
        # Raises what a restoring subtask would raise.
        objects.read_verified(ref)
    digest = xxhash.xxh3_64()
    for start in range(0, size, STREAM_BYTES):
        span = ByteRange(start, min(STREAM_BYTES, size - start))
        digest.update(objects.read_ranges(ref, [span])[0])
    if digest.intdigest() != ref.checksum:
        objects.read_verified(ref)


def expect(found: object, expected: object, summary: str, shown: str) -> None:
    """Raise ContradictionError if a file holds something else than its reference says."""
    if found != expected:
        raise ContradictionError(summary, object_name=shown, found=found, expected=expected)
