"""Compacting an operator beside the stream: read what is stored, merge, and say what to swap in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.metadata import Manifest, SubtaskMetadata, TableConfig, TableFiles, TableType
from lakestate.protocol.records import GenerationRecord
from lakestate.protocol.values import Epoch, TaskInfo
from lakestate.tables.backing_store import BackingStore
from lakestate.tables.context import TableContext
from lakestate.tables.lifecycle import CompactedFiles, CompactionConfig
from lakestate.tables.registry import merged_table, table_of


@dataclass(frozen=True, slots=True)
class CompactedOperator:
    """The merges of one operator, by the subtask that swaps them in."""

    operator_id: str
    epoch: Epoch
    merges: dict[int, tuple[CompactedFiles, ...]]

    def of_subtask(self, subtask_index: int) -> tuple[CompactedFiles, ...]:
        """What a subtask hands to `TableManager.apply_compacted`."""
        return self.merges.get(subtask_index, ())

    @property
    def bytes_written(self) -> int:
        """The size of all merged files."""
        return sum(merge.bytes_written for merges in self.merges.values() for merge in merges)


def compact_operator(
    backend: BackingStore,
    manifest: Manifest,
    operator_id: str,
    mine: GenerationRecord,
    policy: CompactionPolicy,
) -> CompactedOperator:
    """Merge what is worth merging in all tables of an operator."""
    entry = manifest.operator(operator_id)
    objects = backend.objects(manifest.job_id)
    stored = [] if entry is None else objects.read_subtasks(entry.subtasks)
    merges: dict[int, list[CompactedFiles]] = {}
    for metadata in stored:
        for merge in compact_subtask(backend, manifest, metadata, mine, policy):
            merges.setdefault(metadata.subtask_index, []).append(merge)
    for merge in _compact_replicated(backend, manifest, stored, mine, policy):
        # A replicated table's files are spread over all subtasks; each drops its own.
        for metadata in stored:
            merges.setdefault(metadata.subtask_index, []).append(merge)
    done = {index: tuple(found) for index, found in merges.items()}
    return CompactedOperator(operator_id, manifest.epoch, done)


def compact_subtask(
    backend: BackingStore,
    manifest: Manifest,
    metadata: SubtaskMetadata,
    mine: GenerationRecord,
    policy: CompactionPolicy,
) -> list[CompactedFiles]:
    """Merge in the key-ranged tables of one subtask. Subtasks are independent of each other."""
    found = []
    for config in metadata.configs:
        files = metadata.table(config.name)
        if config.table_type is TableType.GLOBAL_KEYED or files is None:
            continue
        context = _context(backend, manifest, metadata, mine)
        merge = _merge(backend, manifest, config, files, context, policy)
        if merge is not None:
            found.append(merge)
    return found


def _compact_replicated(
    backend: BackingStore,
    manifest: Manifest,
    stored: Sequence[SubtaskMetadata],
    mine: GenerationRecord,
    policy: CompactionPolicy,
) -> list[CompactedFiles]:
    found = []
    for config in stored[0].configs if stored else ():
        if config.table_type is not TableType.GLOBAL_KEYED:
            continue
        parts = {
            metadata.subtask_index: files
            for metadata in stored
            if (files := metadata.table(config.name)) is not None
        }
        context = _context(backend, manifest, stored[0], mine)
        merge = _merge(backend, manifest, config, merged_table(config, parts), context, policy)
        if merge is not None:
            found.append(merge)
    return found


def _merge(
    backend: BackingStore,
    manifest: Manifest,
    config: TableConfig,
    files: TableFiles,
    context: TableContext,
    policy: CompactionPolicy,
) -> CompactedFiles | None:
    compaction = CompactionConfig(backend.objects(manifest.job_id), policy)
    # Named after the next epoch: retention never touches objects of an epoch that is not before
    # its boundary, so the merge is safe until it is swapped in or overtaken.
    return table_of(config).compact_data(files, compaction, manifest.epoch.next(), context)


def _context(
    backend: BackingStore, manifest: Manifest, metadata: SubtaskMetadata, mine: GenerationRecord
) -> TableContext:
    task = TaskInfo(
        metadata.job_id,
        metadata.operator_id,
        metadata.subtask_index,
        metadata.parallelism,
        mine.generation,
    )
    return TableContext(
        task=task,
        objects=backend.objects(metadata.job_id),
        cache=backend.cache,
        ambient=backend.ambient,
        watermark_us=manifest.watermark_us,
        now_us=manifest.finished_ms * 1000,
    )
