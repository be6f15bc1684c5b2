"""Compaction as Spark jobs beside the stream: one task for each subtask that has enough files.

Spark gives free slots to the job that started first, so merging all subtasks in one job would make the
next epoch wait until the last merge has begun. Instead, each job merges a few subtasks: an epoch then finds
most slots free, and runs before all merges that have not begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lakestate.coordinator.compact import compact_replicated
from lakestate.coordinator.epoch_plan import decode_merges
from lakestate.job.state_backend import StateBackend
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.metadata import Manifest, SubtaskMetadata
from lakestate.protocol.values import Generation
from lakestate.spark.execution.work import SparkWork
from lakestate.spark.graph.schemas import Schemas
from lakestate.spark.tasks.compaction_task import MERGES, CompactionTask, MergesBySubtask
from lakestate.spark.tasks.task_errors import error_from_spark
from lakestate.tables.contract import Table

SUBTASKS_FOR_ONE_MERGE = 4
"""One merge runs at a time for every so many subtasks of an operator, and so for about as many slots."""


class SparkCompactor:
    """Merges the files of operators on the cluster. The driver's upkeep thread calls it."""

    def __init__(
        self,
        schemas: Schemas,
        backend: StateBackend,
        policy: CompactionPolicy,
        tables: Mapping[str, Sequence[Table]],
        work: SparkWork,
    ) -> None:
        self._work = work
        self._schemas = schemas
        self._backend = backend
        self._policy = policy
        self._tables = tables

    def __call__(
        self, manifest: Manifest, stored: Sequence[SubtaskMetadata], generation: Generation
    ) -> MergesBySubtask:
        """Merge the files of an operator. Returns what each of its subtasks swaps in."""
        merges = self._merge_ranged(manifest, stored, generation)
        for index, found in self._merge_replicated(manifest, stored, generation).items():
            merges[index] = (*merges.get(index, ()), *found)
        return merges

    def _merge_ranged(
        self, manifest: Manifest, stored: Sequence[SubtaskMetadata], generation: Generation
    ) -> MergesBySubtask:
        full = tuple(each for each in stored if self._has_enough_files(each))
        shipped = replace(manifest, operators=(), sinks=(), sources=(), engine_files=(), engine_logs=())
        tables = tuple(self._tables[stored[0].operator_id])
        merges: MergesBySubtask = {}
        at_once = max(1, len(stored) // SUBTASKS_FOR_ONE_MERGE)
        for first in range(0, len(full), at_once):
            subtasks = full[first : first + at_once]
            task = CompactionTask(self._backend, shipped, subtasks, generation, self._policy, tables)
            merges |= self._run_merges(task, len(subtasks))
        return merges

    def _has_enough_files(self, metadata: SubtaskMetadata) -> bool:
        return any(
            len(table.files) >= self._policy.files_min
            for table in metadata.tables
            if not table.table_type.is_replicated and not table.table_type.is_of_one_epoch
        )

    def _run_merges(self, task: CompactionTask, count: int) -> MergesBySubtask:
        session = self._schemas.session
        rows = session.range(0, count, 1, count)
        merges: MergesBySubtask = {}
        try:
            with self._work.tag(session):
                found = rows.mapInArrow(task, f"{MERGES} binary").collect()
        except (PySparkException, Py4JError) as failure:
            raise error_from_spark(failure, "compact the state") from failure
        for row in found:
            merges |= decode_merges(bytes(row[0]))
        return merges

    def _merge_replicated(
        self, manifest: Manifest, stored: Sequence[SubtaskMetadata], generation: Generation
    ) -> MergesBySubtask:
        """Merge replicated tables on the driver: they are small, and all subtasks share their files."""
        if not any(config.table_type.is_replicated for config in stored[0].configs):
            return {}
        tables = self._tables[stored[0].operator_id]
        found = tuple(compact_replicated(self._backend, manifest, stored, generation, self._policy, tables))
        return {metadata.subtask_index: found for metadata in stored} if found else {}
