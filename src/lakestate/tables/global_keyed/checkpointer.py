"""Writing one epoch of a global keyed table: the changed entries, in one file, in the background."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.protocol.metadata import TableConfig, TableFiles
from lakestate.protocol.rescale import carries
from lakestate.protocol.values import Epoch, FileRef
from lakestate.tables.context import TableContext
from lakestate.tables.contract import FinishedTable
from lakestate.tables.global_keyed.files import newest_first, write_entries
from lakestate.tables.global_keyed.layer_cache import keep_entries
from lakestate.tables.writers import submit_write


class GlobalKeyedCheckpointer:
    """Collects what a subtask writes, and carries forward the files that are its own."""

    def __init__(
        self, config: TableConfig, epoch: Epoch, previous: TableFiles, context: TableContext
    ) -> None:
        self.epoch = epoch
        self.commit_data: bytes | None = None
        """Of this epoch only: earlier commit data is already committed."""
        self._config = config
        self._context = context
        self._previous = previous
        self._write: Future[FileRef] | None = None

    def insert_data(self, rows: pa.Table) -> None:
        """Start storing rows, each key once. Call it once: files of one epoch have no order."""
        if self._write is not None:
            raise InvalidInputError(
                "rows of an epoch were handed over twice",
                object_name=f"table {self._config.name}",
                expected="one call: an epoch of a global keyed table is one file",
            )
        if rows.num_rows:
            self._write = submit_write(self._store, rows)

    def _store(self, rows: pa.Table) -> FileRef:
        index = self._context.task.subtask_index
        file = write_entries(rows, self._config, self._context, self.epoch, index)
        keep_entries(rows, file, self._config, self._context)
        return file

    def finish(self) -> FinishedTable:
        """Wait for the upload. If it failed, its error is raised and the epoch is not stored."""
        task = self._context.task
        written = [] if self._write is None else [self._write.result()]
        carried = [file for file in self._previous.files if carries(task, file)]
        files = replace(
            self._previous, files=newest_first([*written, *carried]), commit_data=self.commit_data
        )
        return FinishedTable(files, sum(file.size_bytes for file in written))
