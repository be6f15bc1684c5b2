"""Compacting an operator beside the stream: read its files, merge them, and return what to swap in.

Nothing refers to the merged files until an epoch that swaps them in is published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lakestate.job.state_backend import StateBackend
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.metadata import Manifest, SubtaskMetadata, TableConfig, TableFiles
from lakestate.protocol.values import Epoch, Generation, TaskInfo
from lakestate.storage.cache.run_cache import RunCache
from lakestate.tables.context import TableContext
from lakestate.tables.contract import CompactedFiles, Table
from lakestate.tables.registry import merge_table, table_of


@dataclass(frozen=True, slots=True)
class CompactedOperator:
    """The merges of one operator, by the subtask that swaps each of them in."""

    operator_id: str
    epoch: Epoch
    merges: dict[int, tuple[CompactedFiles, ...]]
    replicated: tuple[CompactedFiles, ...] = ()
    """Merges of tables that all subtasks share: each subtask drops those of the merged files it carries."""

    def of_subtask(self, subtask_index: int) -> tuple[CompactedFiles, ...]:
        """The merges that a subtask passes to `TableManager.apply_compacted`."""
        return (*self.merges.get(subtask_index, ()), *self.replicated)

    @property
    def bytes_written(self) -> int:
        """The total size of the merged files."""
        own = [merge for merges in self.merges.values() for merge in merges]
        return sum(merge.bytes_written for merge in (*own, *self.replicated))


def compact_operator(
    backend: StateBackend,
    manifest: Manifest,
    operator_id: str,
    generation: Generation | None,
    policy: CompactionPolicy,
    tables: Sequence[Table] = (),
) -> CompactedOperator:
    """Merge the files of all tables of an operator where it is worth it.

    With the declared `tables`, files of older state versions are migrated as they are rewritten;
    without them, groups that hold such files are left alone. Nothing is swapped in, so the job need not
    be claimed: without a `generation` the merged files are of the generation that they are made from.
    """
    entry = manifest.operator(operator_id)
    if entry is None:
        return CompactedOperator(operator_id, manifest.epoch, {})
    stored = backend.objects(manifest.job_id).read_subtasks(entry.subtasks)
    return compact_stored(backend, manifest, stored, generation, policy, tables)


def compact_stored(
    backend: StateBackend,
    manifest: Manifest,
    stored: Sequence[SubtaskMetadata],
    generation: Generation | None,
    policy: CompactionPolicy,
    tables: Sequence[Table] = (),
) -> CompactedOperator:
    """Like `compact_operator`, of an operator whose metadata is known."""
    compaction = _Compaction(backend, manifest, generation, policy, {table.name: table for table in tables})
    merges = {metadata.subtask_index: tuple(compaction.merge_subtask(metadata)) for metadata in stored}
    return CompactedOperator(
        stored[0].operator_id, manifest.epoch, merges, tuple(compaction.merge_replicated(stored))
    )


def local_compactor(
    backend: StateBackend, policy: CompactionPolicy | None
) -> Callable[[Manifest, Sequence[SubtaskMetadata], Generation], dict[int, tuple[CompactedFiles, ...]]]:
    """A function that compacts an operator in the calling process, for each of its subtasks."""

    def compact(
        manifest: Manifest, stored: Sequence[SubtaskMetadata], generation: Generation
    ) -> dict[int, tuple[CompactedFiles, ...]]:
        done = compact_stored(backend, manifest, stored, generation, policy or CompactionPolicy())
        return {each.subtask_index: done.of_subtask(each.subtask_index) for each in stored}

    return compact


def compact_subtask(
    backend: StateBackend,
    manifest: Manifest,
    metadata: SubtaskMetadata,
    generation: Generation,
    policy: CompactionPolicy,
    tables: Sequence[Table] = (),
) -> list[CompactedFiles]:
    """Merge files of the key-ranged tables of one subtask. Subtasks are independent of each other."""
    compaction = _Compaction(backend, manifest, generation, policy, {table.name: table for table in tables})
    return compaction.merge_subtask(metadata)


def compact_replicated(
    backend: StateBackend,
    manifest: Manifest,
    stored: Sequence[SubtaskMetadata],
    generation: Generation,
    policy: CompactionPolicy,
    tables: Sequence[Table] = (),
) -> list[CompactedFiles]:
    """Merge files of the replicated tables of an operator. Every subtask drops those that it carries."""
    compaction = _Compaction(backend, manifest, generation, policy, {table.name: table for table in tables})
    return compaction.merge_replicated(stored)


@dataclass(frozen=True, slots=True)
class _Compaction:
    """One compaction of one operator."""

    backend: StateBackend
    manifest: Manifest
    generation: Generation | None
    policy: CompactionPolicy
    declared: Mapping[str, Table]

    def merge_subtask(self, metadata: SubtaskMetadata) -> list[CompactedFiles]:
        """Merge the files of one subtask's key-ranged tables."""
        found = []
        for config in metadata.configs:
            files = metadata.table(config.name)
            if not config.table_type.is_replicated and files is not None:
                found.append(self._merge(config, files, metadata))
        return [merge for merge in found if merge is not None]

    def merge_replicated(self, stored: Sequence[SubtaskMetadata]) -> list[CompactedFiles]:
        """Merge the files of tables that all subtasks share."""
        found = []
        for config in stored[0].configs if stored else ():
            parts = {metadata.subtask_index: metadata.table(config.name) for metadata in stored}
            known = {index: files for index, files in parts.items() if files is not None}
            if config.table_type.is_replicated:
                found.append(self._merge(config, merge_table(config, known), stored[0]))
        return [merge for merge in found if merge is not None]

    def _merge(
        self, config: TableConfig, files: TableFiles, metadata: SubtaskMetadata
    ) -> CompactedFiles | None:
        table = self.declared.get(config.name) or table_of(config)
        if not all(table.can_read(file) for file in files.files):
            return None
        # Named after the next epoch: retention never deletes objects of an epoch at or after its
        # boundary, so the merge is safe until it is swapped in or the boundary passes it.
        return table.compact_data(files, self.policy, self.manifest.epoch.next(), self._context(metadata))

    def _context(self, metadata: SubtaskMetadata) -> TableContext:
        task = TaskInfo(
            metadata.job_id,
            metadata.operator_id,
            metadata.subtask_index,
            metadata.parallelism,
            self.manifest.generation if self.generation is None else self.generation,
        )
        return TableContext(
            task=task,
            objects=self.backend.objects(metadata.job_id),
            cache=self._cache,
            ambient=self.backend.ambient,
            watermark_us=self.manifest.watermark_us,
            now_us=self.manifest.finished_ms * 1000,
        )

    @property
    def _cache(self) -> RunCache | None:
        """The host's cache, unless rows that our code migrated would get into it.

        They are cached under the generation. Without one it is another driver's, whose code may differ.
        """
        return None if self.generation is None and self.declared else self.backend.cache
