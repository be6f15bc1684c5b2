"""Drives a global keyed table through its lifecycle without a manager, over several subtasks."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from typing import Any, ClassVar

import pyarrow.parquet as pq
import xxhash

from lakestate.ambient import SystemAmbient
from lakestate.job.objects import JobObjects
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.metadata import TableFiles
from lakestate.protocol.rescale import carries
from lakestate.protocol.values import Epoch, FileRef, TaskInfo
from lakestate.storage import open_store
from lakestate.storage.cache.run_cache import RunCache
from lakestate.tables.context import TableContext
from lakestate.tables.contract import CompactedFiles, FinishedTable
from lakestate.tables.global_keyed.table import GlobalKeyedTable
from lakestate.tables.global_keyed.view import GlobalKeyedView

TOTALS = GlobalKeyedTable("totals", key=str, value=int)
EAGER = CompactionPolicy(files_min=2, files_max=2, size_ratio=1000.0)


class ReplicatedOperator:
    """All subtasks of one operator, and what its last epoch stored."""

    find_cache: ClassVar[Callable[[], RunCache | None]] = staticmethod(lambda: None)
    """The run cache of the host on which the operator is restored."""

    def __init__(self, table: GlobalKeyedTable, parallelism: int = 1) -> None:
        self.objects = JobObjects(open_store(f"memory://{uuid.uuid4().hex}"), "job")
        self.table = table
        self.epoch = 0
        self.files = TableFiles(table.name, table.table_type)
        self.pending: CompactedFiles | None = None
        self.cache: RunCache | None = None
        self.last: list[FinishedTable] = []
        self.restore(parallelism)

    def restore(self, parallelism: int, table: GlobalKeyedTable | None = None) -> None:
        """Open the last epoch again, with the pending merge swapped in, as a new process would."""
        self.table = table or self.table
        self.cache = self.find_cache()
        self.contexts = [self.context(index, parallelism) for index in range(parallelism)]
        self.parts = [self._part(context.task) for context in self.contexts]
        self.pending = None
        self.views: list[GlobalKeyedView] = [
            self.table.open_view(part, context)
            for part, context in zip(self.parts, self.contexts, strict=True)
        ]

    def checkpoint(self, min_epoch: int = 1) -> list[FinishedTable]:
        """Store an epoch of all subtasks and continue with the same views."""
        epoch = Epoch(self.epoch + 1)
        finished = []
        for view, part, context in zip(self.views, self.parts, self.contexts, strict=True):
            checkpointer = self.table.epoch_checkpointer(epoch, part, context)
            view.checkpoint_into(checkpointer)
            finished.append(checkpointer.finish())
        for view, done, context in zip(self.views, finished, self.contexts, strict=True):
            view.begin_next_epoch(done.files, context)
            view.forget_before(Epoch(min_epoch))
        self.epoch, self.last, self.parts = epoch, finished, [done.files for done in finished]
        stored = {index: done.files for index, done in enumerate(finished)}
        self.files = self.table.merge_checkpoint_metadata(self.table.config, stored)
        return finished

    def compact(
        self, policy: CompactionPolicy = EAGER, table: GlobalKeyedTable | None = None
    ) -> CompactedFiles | None:
        """Merge what the last epoch stored. It is swapped in by the next restore."""
        next_epoch = Epoch(self.epoch + 1)
        merging = table or self.table
        self.pending = merging.compact_data(self.files, policy, next_epoch, self.context(0, 1))
        return self.pending

    def context(self, index: int, parallelism: int) -> TableContext:
        task = TaskInfo("job", "op", index, parallelism)
        return TableContext(task, self.objects, self.cache, SystemAmbient(), None, 0)

    def overwrite(self, path: str, data: bytes) -> None:
        """Damage an object."""
        self.objects.store.put(self.objects.store_path(path), data)

    def read(self, path: str) -> bytes:
        """The bytes of an object."""
        return self.objects.store.get(self.objects.store_path(path)).data

    def _part(self, task: TaskInfo) -> TableFiles:
        part = self.table.subtask_metadata_from_table(self.table.config, self.files, task)
        if self.pending is not None:
            part = self.table.apply_compacted_checkpoint(part, self.pending, task)
        return part

    def carried_once(self) -> bool:
        """Whether every file of the last epoch is in the metadata of exactly one subtask."""
        tasks = [context.task for context in self.contexts]
        return all(
            [file in done.files.files for done in self.last] == [carries(task, file) for task in tasks]
            for file in self.files.files
        )


def without_checksum(files: TableFiles, data: bytes) -> TableFiles:
    """The reference that a file with other bytes would have had from the start."""
    file = replace(files.files[0], size_bytes=len(data), checksum=xxhash.xxh3_64_intdigest(data))
    return replace(files, files=(file, *files.files[1:]))


def operator_with(entries: dict[Any, Any], table: GlobalKeyedTable = TOTALS) -> ReplicatedOperator:
    """One subtask whose first epoch stored these entries."""
    operator = ReplicatedOperator(table)
    for key, value in entries.items():
        operator.views[0].insert(key, value)
    operator.checkpoint()
    return operator


def rows_of(operator: ReplicatedOperator, file: FileRef) -> list[dict[str, Any]]:
    """The rows of a file, as any Parquet reader sees them."""
    rows: list[dict[str, Any]] = pq.read_table(BytesIO(operator.read(file.path))).to_pylist()
    return rows
