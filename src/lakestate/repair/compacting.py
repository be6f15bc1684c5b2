"""`compact_job`: merge files of a job by hand, and publish its newest epoch again with the merged ones.

For a job that does not run: a pipeline merges beside its stream. The new epoch has the rows, offsets and open
files of the newest one, and nothing to commit. Nothing is deleted: retention removes what was merged when no
epoch that is kept refers to it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from lakestate.coordinator.commit import commit_epoch
from lakestate.coordinator.compact import CompactedOperator, compact_replicated, compact_subtask
from lakestate.coordinator.epoch_plan import encode_commit_parts
from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.coordinator.publish import publish_epoch, require_published
from lakestate.coordinator.recover import (
    NewestEpochs,
    observe_newest,
    refuse_outdated_claim,
    require_same_state,
)
from lakestate.errors import CorruptionError, IncompatibleStateError, NotFoundError
from lakestate.job.objects import JobObjects
from lakestate.protocol.compaction import CompactionPolicy, plan_compaction
from lakestate.protocol.metadata import (
    CommitPart,
    Manifest,
    OperatorEntry,
    SinkPreCommit,
    StateSummary,
    SubtaskEntry,
    SubtaskMetadata,
    TableConfig,
    TableFiles,
)
from lakestate.protocol.publication import Superseded
from lakestate.protocol.records import GenerationRecord
from lakestate.protocol.values import Epoch, TaskInfo
from lakestate.repair.engine_position import engine_files_at, refuse_data_source
from lakestate.repair.open_files import renewed_metadata
from lakestate.repair.pre_commits import commit_parts
from lakestate.sinks.files.pre_commit import PreCommit, has_output
from lakestate.sinks.files.writer import PRE_COMMITS
from lakestate.tables.context import TableContext
from lakestate.tables.contract import CompactedFiles
from lakestate.tables.registry import merge_table, table_of

_log = logging.getLogger("lakestate.repair")

TellProgress = Callable[[str], None]
"""Told what is merged next."""

_CommitData = dict[tuple[str, int], CommitPart]
"""What an epoch that is published again keeps of its pre-commits, by sink and subtask."""


@dataclass(frozen=True, slots=True)
class PlannedMerge:
    """Files of one table that are worth merging."""

    operator: str
    table: str
    subtask: int | None
    """None for a table that all subtasks share."""
    files: int
    """How many files the table has there, and how large they are together."""
    size_bytes: int
    merged_files: int
    rewritten_bytes: int


@dataclass(frozen=True, slots=True)
class CompactedJob:
    """What was merged."""

    epoch: Epoch
    """The newest epoch: the last that was published with merged files, or the one that was found."""
    merges: int
    bytes_written: int
    before: StateSummary
    after: StateSummary


def plan_job_compaction(backend: ParquetBackend, job_id: str, policy: CompactionPolicy) -> list[PlannedMerge]:
    """Which files `compact_job` would merge first. Merged files may be worth merging again.

    Refused for the reasons for which `compact_job` refuses. Nothing is claimed or changed.
    """
    job = backend.objects(job_id)
    source = _require_settled(job, observe_newest(job))
    return list(_planned_merges(job, source, policy))


def compact_job(
    backend: ParquetBackend,
    job_id: str,
    policy: CompactionPolicy | None = None,
    tell: TellProgress = lambda text: None,
) -> CompactedJob:
    """Merge what a policy finds worth it in the newest epoch of a job, until nothing is left to merge.

    Each round of merges is published as an epoch. A driver that runs the job ends with FencedError, and
    continues from there when it is started again; if nothing is worth merging, nobody is fenced. An epoch
    whose commit is not complete is refused: start the job first. Calling it again after a failure is fine.

    >>> import lakestate as ls
    >>> backend = ls.ParquetBackend("memory://docs-compact", cache_bytes=0)
    >>> task = ls.TaskInfo(job_id="job", operator_id="op")
    >>> tables = ls.TableManager.load(task, [ls.GlobalKeyedTable("t", key=str, value=int)], backend, None)
    >>> for epoch in (1, 2):
    ...     tables.global_keyed("t").insert("total", epoch)
    ...     done = tables.checkpoint(epoch=epoch, min_epoch=1, watermark=None, then_stop=False)
    ...     record = backend.write_checkpoint_metadata("job", epoch, [done])
    >>> done = compact_job(backend, "job", ls.CompactionPolicy(files_min=2))
    >>> done.epoch, done.before.file_count, done.after.file_count
    (Epoch(3), 2, 1)
    >>> ls.read_state("memory://docs-compact", "job", "op", "t").to_pylist()
    [{'key': 'total', 'value': 2}]
    """
    work = _Compacting(backend, backend.objects(job_id), policy or CompactionPolicy(), tell)
    source = _require_settled(work.job, observe_newest(work.job))
    if not any(_planned_merges(work.job, source, work.policy)):
        return CompactedJob(source.epoch, 0, 0, source.summary, source.summary)
    return work.run(backend.claim(job_id))


@dataclass(frozen=True, slots=True)
class _Compacting:
    """One job while its files are merged."""

    backend: ParquetBackend
    job: JobObjects
    policy: CompactionPolicy
    tell: TellProgress

    def run(self, claim: GenerationRecord) -> CompactedJob:
        """Merge and publish under a claim. A driver that was fenced may publish one last epoch."""
        merges = bytes_written = 0
        before: StateSummary | None = None
        while True:
            source = self._observe(claim)
            before = source.summary if before is None else before
            found = self._merge(source, claim)
            if not found:
                return CompactedJob(source.epoch, merges, bytes_written, before, source.summary)
            if self._publish(source, claim, found) is not None:
                merges += sum(_merge_count(each) for each in found.values())
                bytes_written += sum(each.bytes_written for each in found.values())

    def _observe(self, claim: GenerationRecord) -> Manifest:
        newest = observe_newest(self.job)
        refuse_outdated_claim(self.job, claim, newest)
        return require_same_state(self.job, claim, _require_settled(self.job, newest))

    def _merge(self, source: Manifest, claim: GenerationRecord) -> dict[str, CompactedOperator]:
        found: dict[str, CompactedOperator] = {}
        for entry in source.operators:
            stored = self.job.read_subtasks(entry.subtasks)
            settings = (claim.generation, self.policy)
            merges = {}
            for metadata in stored:
                self.tell(f"operator {entry.operator_id}, subtask {metadata.subtask_index}")
                merges[metadata.subtask_index] = tuple(
                    compact_subtask(self.backend, source, metadata, *settings)
                )
            shared = tuple(compact_replicated(self.backend, source, stored, *settings))
            if shared or any(merges.values()):
                found[entry.operator_id] = CompactedOperator(entry.operator_id, source.epoch, merges, shared)
        return found

    def _publish(
        self, source: Manifest, claim: GenerationRecord, found: Mapping[str, CompactedOperator]
    ) -> Manifest | None:
        """The new epoch; None if another driver has published one of that number just before."""
        epoch, now_ms = source.epoch.next(), self.backend.ambient.now_ms()
        kept = _kept_pre_commits(source)
        swap = _SwappingIn(self.backend, source, claim, epoch, kept)
        manifest = replace(
            source,
            epoch=epoch,
            generation=claim.generation,
            parent=source.epoch,
            started_ms=now_ms,
            finished_ms=max(now_ms, source.finished_ms),
            operators=tuple(swap.operator(entry, found.get(entry.operator_id)) for entry in source.operators),
            sinks=tuple(_pre_commits(kept)),
            engine_files=engine_files_at(source, epoch),
        )
        outcome = publish_epoch(self.job, claim, manifest, self.backend.ambient)
        if isinstance(outcome, Superseded):
            return None
        permit = require_published(outcome, self.job, epoch)
        _log.info("files of job %s were merged: epoch %s", self.job.job_id, epoch)
        # Open files are all that it keeps of its sinks: there is nothing to make visible.
        nothing = {sink.sink_id: lambda permit, sink: None for sink in manifest.sinks}
        commit_epoch(self.job, claim, permit, manifest, nothing)
        return manifest


@dataclass(frozen=True, slots=True)
class _SwappingIn:
    """Writes the metadata of subtasks whose files were merged, or that had left something to commit."""

    backend: ParquetBackend
    source: Manifest
    claim: GenerationRecord
    epoch: Epoch
    kept: _CommitData

    def operator(self, entry: OperatorEntry, merges: CompactedOperator | None) -> OperatorEntry:
        """An operator with its merges swapped in."""
        stored = self.backend.objects(self.source.job_id).read_subtasks(entry.subtasks)
        subtasks = [
            self._subtask(each, metadata, stored, merges)
            for each, metadata in zip(entry.subtasks, stored, strict=True)
        ]
        return replace(entry, subtasks=tuple(subtasks))

    def _subtask(
        self,
        entry: SubtaskEntry,
        metadata: SubtaskMetadata,
        stored: Sequence[SubtaskMetadata],
        merges: CompactedOperator | None,
    ) -> SubtaskEntry:
        own = () if merges is None else merges.of_subtask(metadata.subtask_index)
        tables = tuple(self._table(files, metadata, stored, own) for files in metadata.tables)
        part = self.kept.get((metadata.operator_id, metadata.subtask_index))
        commit_data = {} if part is None else {part.table: part.data}
        changed = replace(metadata, tables=tables)
        renewed = renewed_metadata(changed, self.backend, self.claim, self.epoch, commit_data)
        if renewed.tables == metadata.tables:
            return replace(entry, summary=replace(entry.summary, bytes_written=0))
        known = {file.path for table in metadata.tables for file in table.files}
        new = [file for table in tables for file in table.files if file.path not in known]
        written = sum(file.size_bytes for file in new)
        renewed = replace(renewed, bytes_written=written)
        ref = self.backend.write_operator_checkpoint_metadata(renewed)
        files = [file for table in renewed.tables for file in table.files]
        rows, size = sum(file.row_count for file in files), sum(file.size_bytes for file in files)
        return replace(entry, metadata=ref, summary=StateSummary(len(files), rows, size, written))

    def _table(
        self,
        files: TableFiles,
        metadata: SubtaskMetadata,
        stored: Sequence[SubtaskMetadata],
        merges: Sequence[CompactedFiles],
    ) -> TableFiles:
        """A subtask's files of a table, with the merges of that table in the place of what they replace."""
        if files.table_type.is_of_one_epoch:
            return replace(files, files=())
        mine = [merge for merge in merges if merge.table == files.table]
        if not mine:
            return files
        config = _require_config(metadata, files)
        table, context = table_of(config), self._context(metadata)
        swapped = _shared_files(config, stored) if config.table_type.is_replicated else files
        for merge in mine:
            swapped = table.apply_compacted_checkpoint(swapped, merge, context.task)
        # Of a table that all share, each subtask carries its own files: its type knows which these are.
        return table.epoch_checkpointer(self.epoch, swapped, context).finish().files

    def _context(self, metadata: SubtaskMetadata) -> TableContext:
        task = TaskInfo(
            metadata.job_id,
            metadata.operator_id,
            metadata.subtask_index,
            metadata.parallelism,
            self.claim.generation,
            self.claim.state_id,
        )
        return TableContext(
            task=task,
            objects=self.backend.objects(metadata.job_id),
            cache=None,
            ambient=self.backend.ambient,
            watermark_us=self.source.watermark_us,
            now_us=self.source.finished_ms * 1000,
        )


def _require_settled(job: JobObjects, newest: NewestEpochs) -> Manifest:
    """The newest epoch, if it is intact and committed: recovery looks at the newest epoch alone."""
    source, last = newest.intact, newest.last
    if last is None:
        raise NotFoundError(
            f"job {job.job_id} has no published epoch", object_name=job.url_of("epochs/"), action="start it"
        )
    if source is None or source.epoch != last:
        good = "" if source is None else f", or continue from epoch {source.epoch} with rollback"
        raise CorruptionError(
            "the newest epoch cannot be read",
            object_name=job.url_of(job.paths.epoch_record(last)),
            action=f"lakestate fsck {job.job_id} says why: restore the object{good}",
        )
    refuse_data_source(source, "be compacted by hand")
    if not newest.observed[0].committed and _has_output(source):
        raise IncompatibleStateError(
            "the newest epoch is published, and its commit is not complete",
            object_name=f"epoch {source.epoch} of job {job.job_id}",
            found=f"output of {', '.join(sorted({each.sink_id for each in source.sinks}))}",
            action="start the job, which completes the commit, and stop it again; then compact it",
        )
    return source


def _planned_merges(job: JobObjects, source: Manifest, policy: CompactionPolicy) -> Iterator[PlannedMerge]:
    for operator in source.operators:
        stored = job.read_subtasks(operator.subtasks)
        for metadata in stored:
            for config in metadata.configs:
                files = metadata.table(config.name)
                kind = config.table_type
                if files is not None and not (kind.is_replicated or kind.is_of_one_epoch):
                    yield from _planned(operator.operator_id, config, files, metadata.subtask_index, policy)
        for config in stored[0].configs if stored else ():
            if config.table_type.is_replicated:
                shared = _shared_files(config, stored)
                yield from _planned(operator.operator_id, config, shared, None, policy)


def _planned(
    operator: str, config: TableConfig, files: TableFiles, subtask: int | None, policy: CompactionPolicy
) -> Iterator[PlannedMerge]:
    plan = plan_compaction(files.files, policy)
    # Files of older versions are migrated by the pipeline, which has the code for it.
    if plan is not None and all(table_of(config).can_read(file) for file in files.files):
        merged = files.files[plan.start : plan.stop]
        sizes = [sum(file.size_bytes for file in each) for each in (files.files, merged)]
        yield PlannedMerge(operator, files.table, subtask, len(files.files), sizes[0], len(merged), sizes[1])


def _shared_files(config: TableConfig, stored: Sequence[SubtaskMetadata]) -> TableFiles:
    """The files of a table that all subtasks share."""
    parts = {metadata.subtask_index: metadata.table(config.name) for metadata in stored}
    return merge_table(config, {index: files for index, files in parts.items() if files is not None})


def _has_output(source: Manifest) -> bool:
    """Whether committing an epoch makes anything visible. One with merged files only keeps files open."""
    parts = [part for sink in source.sinks for part in commit_parts(sink, source)]
    return any(part.table != PRE_COMMITS for part in parts) or has_output(part.data for part in parts)


def _kept_pre_commits(source: Manifest) -> _CommitData:
    """The open files of sinks. What else their subtasks had left was committed with its own epoch.

    Without them, the clean-up of a sink would take the uploads of open files for leftovers.
    """
    kept: _CommitData = {}
    for sink in source.sinks:
        for part in commit_parts(sink, source):
            if part.table not in (PRE_COMMITS, ""):
                continue
            found = PreCommit.decode(part.data)
            if found.open:
                again = msgspec.structs.replace(found, finished=(), snapshots=(), dropped=())
                kept[sink.sink_id, part.subtask_index] = CommitPart(
                    part.subtask_index, PRE_COMMITS, again.encode()
                )
    return kept


def _pre_commits(kept: _CommitData) -> Iterator[SinkPreCommit]:
    for sink_id in dict.fromkeys(sink_id for sink_id, _ in kept):
        parts = [part for (each, _), part in sorted(kept.items()) if each == sink_id]
        yield SinkPreCommit(sink_id, encode_commit_parts(parts))


def _require_config(metadata: SubtaskMetadata, files: TableFiles) -> TableConfig:
    config = metadata.config(files.table)
    assert config is not None, f"a merge of table {files.table} was made from its declaration"
    return config


def _merge_count(operator: CompactedOperator) -> int:
    return len(operator.replicated) + sum(len(merges) for merges in operator.merges.values())
