"""Merges the files of subtasks inside a Spark task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from lakestate.coordinator.compact import compact_subtask
from lakestate.coordinator.epoch_plan import encode_merges
from lakestate.job.state_backend import StateBackend
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.metadata import Manifest, SubtaskMetadata
from lakestate.protocol.values import Generation
from lakestate.spark.tasks.task_errors import record_errors
from lakestate.tables.contract import CompactedFiles, Table
from lakestate.tables.registry import register_declared

MergesBySubtask = dict[int, tuple[CompactedFiles, ...]]
"""The merged files of each subtask, by its index."""

MERGES = "merges"
"""The column in which a task returns them."""


@dataclass(frozen=True)
class CompactionTask:
    """The function that `mapInArrow` calls: row `i` stands for the subtask at `subtasks[i]`."""

    backend: StateBackend
    manifest: Manifest
    subtasks: tuple[SubtaskMetadata, ...]
    generation: Generation
    policy: CompactionPolicy
    tables: tuple[Table, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Merge the files of these subtasks, where the policy finds it worthwhile."""
        with record_errors():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    data = encode_merges(self._merge(self.subtasks[number]))
                    yield pa.record_batch({MERGES: pa.array([data], pa.binary())})

    def _merge(self, metadata: SubtaskMetadata) -> MergesBySubtask:
        register_declared(self.tables)
        found = compact_subtask(
            self.backend, self.manifest, metadata, self.generation, self.policy, self.tables
        )
        return {metadata.subtask_index: tuple(found)} if found else {}
