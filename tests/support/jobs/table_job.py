"""A job with one operator, driven by hand: several subtasks, epochs, crashes, rescaling, compaction.

Model tests of all table types stand on it. It knows nothing of what the tables hold.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Sequence

from lakestate.coordinator.compact import CompactedOperator
from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.retention import RetentionPlan
from lakestate.protocol.values import Epoch, TaskInfo
from lakestate.tables.contract import Table
from lakestate.tables.manager import TableManager

EAGER = CompactionPolicy(files_min=2, files_max=4, size_floor_bytes=1)
PARTIAL = CompactionPolicy(files_min=2, files_max=2, size_ratio=0.001, size_floor_bytes=1)
"""Merges the two cheapest neighbours, wherever they are."""


class TableJob:
    """The subtasks of one operator over a store in memory."""

    def __init__(
        self, tables: Sequence[Table], parallelism: int = 1, url: str | None = None, *, caches: bool = True
    ) -> None:
        self.tables = list(tables)
        self.parallelism = parallelism
        self._folder = tempfile.TemporaryDirectory(prefix="lakestate-test-", ignore_cleanup_errors=True)
        self.backend = ParquetBackend(
            url or f"memory://{uuid.uuid4().hex}",
            cache_dir=self._folder.name,
            cache_bytes="1GB" if caches else 0,
        )
        self.epoch: Epoch | None = None
        self.oldest = 1
        self.compacted: CompactedOperator | None = None
        self.managers: list[TableManager] = []
        self.restart()

    def close(self) -> None:
        self._folder.cleanup()

    def restart(self, parallelism: int | None = None, tables: Sequence[Table] | None = None) -> None:
        """Forget all memory and restore from the last published epoch."""
        self.parallelism = parallelism or self.parallelism
        self.tables = list(tables or self.tables)
        self.managers = self.opened(self.epoch)
        if self.compacted is not None:
            for index, manager in enumerate(self.managers):
                manager.apply_compacted(self.compacted.of_subtask(index))
            self.compacted = None

    def opened(self, epoch: Epoch | None, parallelism: int | None = None) -> list[TableManager]:
        count = parallelism or self.parallelism
        tasks = [TaskInfo("job", "op", index, count) for index in range(count)]
        return [TableManager.load(task, self.tables, self.backend, epoch) for task in tasks]

    def checkpoint(self, watermark_us: int | None = None) -> Epoch:
        """Checkpoint every subtask and publish."""
        epoch = Epoch(1) if self.epoch is None else self.epoch.next()
        done = [manager.checkpoint(epoch, self.oldest, watermark_us, False) for manager in self.managers]
        self.backend.write_checkpoint_metadata("job", epoch, done, watermark_us=watermark_us)
        self.epoch = epoch
        return epoch

    def compact(self, policy: CompactionPolicy = EAGER) -> None:
        """Merge beside the stream; swapped in by the next restart."""
        if self.epoch is not None:
            self.compacted = self.backend.compact_operator(
                "job", "op", self.epoch, policy=policy, tables=self.tables
            )

    def retain(self, keep: int) -> None:
        """Keep only the newest epochs."""
        if self.epoch is not None and self.epoch - keep >= self.oldest:
            self.oldest = self.epoch - keep + 1
            plan = self.backend.cleanup_checkpoint("job", self.oldest)
            assert isinstance(plan, RetentionPlan)
