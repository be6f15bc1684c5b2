"""`StagedTable`: the rows of one epoch as data files of the job, and nothing of earlier epochs.

Being a state table is what makes staging exact: its files belong to the epoch that is published or not,
retention keeps them as long as their epoch and collects those of failed attempts, and a verification reads
them. The next epoch carries none of them forward. Its commit data names them, for the committer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import cached_property
from typing import Any, ClassVar, Self

import pyarrow as pa
import xxhash

from lakestate.errors import InvalidInputError
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import Column, TableConfig, TableFiles
from lakestate.protocol.table_types import TableType
from lakestate.protocol.values import Epoch, FileRef, Generation, TaskInfo
from lakestate.tables.context import TableContext
from lakestate.tables.contract import (
    EpochCheckpointer,
    FinishedTable,
    Table,
    View,
    require_checkpointer,
)
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs.parquet import decode_run, encode_run
from lakestate.tables.staged.pre_commit import StagedObject, StagedRows
from lakestate.tables.writers import submit_write

STAGED_ROWS = "staged"
"""The table of a staged sink."""
OBJECT_BYTES = 32 << 20
"""Rows in memory at which an object is written: what a writer holds, and what is delivered in one piece."""
WRITES_MAX = 2
"""Objects of a subtask that are written at the same time. The subtask waits for the oldest of more."""


class StagedTable(Table):
    """The rows that a subtask staged in an epoch. Their columns are in the files, and not declared.

    Tools that read state show each row as JSON, in the column `row`.

    >>> StagedTable("staged").config.value_columns[0].name
    'row'
    """

    table_type: ClassVar[TableType] = TableType("staged", is_append_only=True, is_of_one_epoch=True)

    @cached_property
    def config(self) -> TableConfig:
        """The declaration as it is stored. Rows with other columns need no migration: nothing is kept."""
        return TableConfig(
            self.name,
            self.table_type,
            description="rows of the epoch, to be delivered once it is published",
            value_columns=(Column("row", "string"),),
        )

    @classmethod
    def from_config(cls, config: TableConfig) -> Self:
        """The table of a stored declaration."""
        return cls(config.name)

    def open_view(self, files: TableFiles, context: TableContext) -> StagedView:
        """The rows in these files, for tools; a subtask begins without any."""
        return StagedView(self.config, files, context)

    def stored_rows(self, files: TableFiles, context: TableContext) -> pa.RecordBatchReader:
        """The rows as JSON, an object at a time."""
        return pa.RecordBatchReader.from_batches(
            _SHOWN,
            (
                pa.record_batch([[_to_json(row) for row in rows.to_pylist()]], schema=_SHOWN)
                for rows in (read_staged(file, self.config, context.objects) for file in files.files)
            ),
        )

    def epoch_checkpointer(
        self, epoch: Epoch, previous: TableFiles, context: TableContext
    ) -> StagedCheckpointer:
        """Takes what the view has written. Nothing of earlier epochs is carried forward."""
        return StagedCheckpointer(self.config, epoch, context)

    @classmethod
    def subtask_metadata_from_table(
        cls, config: TableConfig, merged: TableFiles, task: TaskInfo
    ) -> TableFiles:
        """Nothing: the rows of an earlier epoch are delivered before the next one is run."""
        return TableFiles(config.name, config.table_type)

    def check_file(self, file: FileRef, context: TableContext) -> None:
        """Raise if a file is not what its reference says."""
        read_staged(file, self.config, context.objects)


class StagedView(View):
    """Takes the rows of a subtask, and writes them as objects whenever enough have come together."""

    def __init__(self, config: TableConfig, files: TableFiles, context: TableContext) -> None:
        self._config = config
        self._files = files
        self._context = context
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._writes: list[Future[FileRef]] = []

    def append(self, batch: pa.RecordBatch, epoch: Epoch) -> None:
        """Stage rows of an epoch, after those before. Memory is bounded by the size of an object."""
        for piece in _pieces(batch):
            self._batches.append(piece)
            self._bytes += piece.nbytes
            if self._bytes >= OBJECT_BYTES:
                self._write(epoch)

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows of the files that the view was opened with, as JSON."""
        tables = (read_staged(file, self._config, self._context.objects) for file in self._files.files)
        return [{"row": _to_json(row)} for table in tables for row in table.to_pylist()]

    def checkpoint_into(self, checkpointer: EpochCheckpointer) -> None:
        """Write the rest of the rows, and hand over the objects."""
        taker = require_checkpointer(checkpointer, StagedCheckpointer)
        self._write(taker.epoch)
        taker.take(self._writes)

    def begin_next_epoch(self, files: TableFiles, context: TableContext) -> None:
        """Begin without rows."""
        self._files, self._context, self._writes = files, context, []

    def _write(self, epoch: Epoch) -> None:
        if not self._batches:
            return
        rows, self._batches, self._bytes = pa.Table.from_batches(self._batches), [], 0
        if len(self._writes) >= WRITES_MAX:
            self._writes[-WRITES_MAX].result()
        self._writes.append(submit_write(_write_object, rows, self._config, self._context, epoch))


class StagedCheckpointer:
    """The objects of one epoch, and the commit data that names them."""

    def __init__(self, config: TableConfig, epoch: Epoch, context: TableContext) -> None:
        self.epoch = epoch
        self._config = config
        self._context = context
        self._writes: list[Future[FileRef]] = []

    def insert_data(self, rows: pa.Table) -> None:
        """Start storing rows. Nothing is stored for no rows."""
        if rows.num_rows:
            write = submit_write(_write_object, rows, self._config, self._context, self.epoch)
            self._writes.append(write)

    def take(self, writes: list[Future[FileRef]]) -> None:
        """Take objects that the view has begun to write."""
        self._writes += writes

    def finish(self) -> FinishedTable:
        """Wait for the uploads. If one failed, its error is raised and the epoch is not stored."""
        files = tuple(write.result() for write in self._writes)
        if any(file.epoch != self.epoch for file in files):
            raise InvalidInputError(
                "rows of another epoch were staged",
                object_name=f"table {self._config.name}",
                found=sorted({file.epoch for file in files}),
                expected=f"epoch {self.epoch}",
            )
        found = TableFiles(
            self._config.name, self._config.table_type, files, commit_data=self._commit_data(files)
        )
        return FinishedTable(found, sum(file.size_bytes for file in files))

    def _commit_data(self, files: tuple[FileRef, ...]) -> bytes | None:
        if not files:
            return None
        task = self._context.task
        objects = tuple(StagedObject.of(file) for file in files)
        return StagedRows(task.state_id, task.operator_id, task.subtask_index, objects).encode()


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of about the size of an object."""
    if batch.num_rows:
        rows = max(1, OBJECT_BYTES * batch.num_rows // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _write_object(rows: pa.Table, config: TableConfig, context: TableContext, epoch: Epoch) -> FileRef:
    task = context.task
    key_values = CheckpointParquetMetadata.of(config).to_key_values()
    data = encode_run(rows, key_values, is_sorted=False)
    uid = f"g{task.generation}-{context.ambient.new_id()}"
    file = FileRef(
        path=context.objects.paths.data(epoch, task.operator_id, config.name, task.subtask_index, uid),
        size_bytes=data.size,
        checksum=xxhash.xxh3_64_intdigest(data),
        row_count=rows.num_rows,
        epoch=epoch,
        generation=task.generation,
        subtask_index=task.subtask_index,
        state_version=config.state_version,
        schema_fingerprint=config.schema_fingerprint,
        valid_keys=task.key_range,
    )
    context.objects.put_verified(file.object_ref, memoryview(data).cast("B"))
    return file


def read_staged(file: FileRef | StagedObject, config: TableConfig, objects: JobObjects) -> pa.Table:
    """The rows of an object, whose bytes are verified first."""
    ref = file.object_ref if isinstance(file, FileRef) else file.ref
    shown = objects.url_of(ref.path)
    rows = decode_run(pa.py_buffer(objects.read_verified(ref)), shown, file.row_count)
    CheckpointParquetMetadata.from_key_values(rows.schema.metadata, shown).check(config, shown)
    return rows.replace_schema_metadata(None)


def _to_json(row: Mapping[str, Any]) -> str:
    return json.dumps(row, default=str, ensure_ascii=False)


_SHOWN = pa.schema([("row", pa.string())])
_OBJECT_NAME = re.compile(rf"{STAGED_ROWS}-[0-9]+-g(?P<generation>[0-9]+)-[^/]+\.parquet")


def staged_before(paths: Iterable[str], generation: Generation) -> list[str]:
    """Of the paths of objects, those of staged rows that drivers of lower generations wrote."""
    found = ((path, _OBJECT_NAME.fullmatch(path.rpartition("/")[2])) for path in paths)
    return [path for path, name in found if name is not None and int(name["generation"]) < generation]
