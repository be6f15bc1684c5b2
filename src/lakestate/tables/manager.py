"""`TableManager`: all state tables of one subtask of one operator, from restore to checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from lakestate.codec import encode_subtask
from lakestate.errors import ConflictError, InvalidInputError, NotFoundError
from lakestate.job.objects import JobObjects
from lakestate.job.state_backend import StateBackend
from lakestate.observability.time_parts import MERGE, timed, waiting
from lakestate.protocol.metadata import Manifest, StateSummary, SubtaskEntry, SubtaskMetadata
from lakestate.protocol.paths import parse_object_name
from lakestate.protocol.values import Epoch, FileRef, ObjectRef, TaskInfo
from lakestate.protocol.watermarks import instant
from lakestate.tables.context import TableContext
from lakestate.tables.contract import CompactedFiles, FinishedTable, Table, View
from lakestate.tables.event_time import EventTimeLike, event_time_us
from lakestate.tables.global_keyed.view import GlobalKeyedView
from lakestate.tables.keyed.view import KeyedView
from lakestate.tables.registry import register_declared
from lakestate.tables.restore import RestoredSubtask, empty_subtask, new_subtask, restore_subtask
from lakestate.tables.stored_operator import ShippedOperator, digest_commit_data
from lakestate.tables.time_key.view import TimeKeyView

V = TypeVar("V", bound=View)


@dataclass(frozen=True, slots=True)
class SubtaskCheckpoint:
    """What a subtask reports to the driver when its checkpoint is stored."""

    operator_id: str
    parallelism: int
    epoch: Epoch
    attempt: str
    entry: SubtaskEntry
    watermark_us: int | None
    commit_data: Mapping[str, bytes]
    files_written: int = 0
    then_stop: bool = False
    metadata: bytes | None = None
    """The metadata object that was written; None if it says the same as the one before."""


class TableManager:
    """The state tables of one subtask.

    >>> import lakestate as ls
    >>> backend = ls.ParquetBackend("memory://docs-manager")
    >>> task = ls.TaskInfo(job_id="job", operator_id="op")
    >>> declared = [ls.GlobalKeyedTable("my_state", key=str, value=int)]
    >>> tables = TableManager.load(task, declared, backend, restore_from=None)
    >>> tables.global_keyed("my_state").insert("total", 42)
    >>> done = tables.checkpoint(epoch=1, min_epoch=1, watermark=None, then_stop=False)
    >>> record = backend.write_checkpoint_metadata("job", 1, [done])
    >>> again = TableManager.load(task, declared, backend, restore_from=1)
    >>> again.global_keyed("my_state").get("total")
    42
    """

    def __init__(
        self, context: TableContext, backend: StateBackend, tables: Sequence[Table], state: RestoredSubtask
    ) -> None:
        self._context = context
        self._backend = backend
        self._tables = {table.name: table for table in tables}
        self._files = dict(state.files)
        self._configs = state.configs
        self._stored_epoch = state.epoch
        """The newest epoch that holds this state: the restored one, or the last that was checkpointed."""
        self._previous = state.previous
        self._views: dict[str, View] = {}

    @classmethod
    def load(
        cls,
        task: TaskInfo,
        tables: Sequence[Table],
        backend: StateBackend,
        restore_from: Epoch | int | Manifest | None,
        *,
        drop: Collection[str] = (),
        allow_new_operator: bool = False,
        processing_time_us: int | None = None,
        shipped: ShippedOperator | None = None,
    ) -> TableManager:
        """Empty state, or the state of a published epoch, at any parallelism.

        An epoch is given as its number or, if it is known already, as its manifest.
        `drop` names stored tables whose state is dropped. Raises NotFoundError if the epoch has no such
        operator, unless `allow_new_operator` says that it may be new and begin with empty state. Rows
        that have expired by the epoch's watermark are gone. The time of day is the host's unless given,
        and never before the epoch. `shipped` is the operator's metadata in that epoch, if the caller
        knows it: then none is read. Views open their files when they are first used.
        """
        _check_names(tables)
        register_declared(tables)
        objects, now_ms = backend.objects(task.job_id), backend.ambient.now_ms()
        if restore_from is None:
            state = empty_subtask(tables)
        else:
            manifest = (
                restore_from
                if isinstance(restore_from, Manifest)
                else backend.load_checkpoint_metadata(task.job_id, Epoch(restore_from))
            )
            if allow_new_operator and manifest.operator(task.operator_id) is None:
                state = new_subtask(tables, manifest)
            else:
                state = restore_subtask(task, tables, manifest, objects, drop, shipped)
            now_ms = max(now_ms, manifest.finished_ms)
        context = TableContext(
            task=task,
            objects=objects,
            cache=backend.cache,
            ambient=backend.ambient,
            watermark_us=state.watermark_us,
            now_us=now_ms * 1000 if processing_time_us is None else processing_time_us,
        )
        return cls(context, backend, tables, state)

    @property
    def task(self) -> TaskInfo:
        """Whose tables these are."""
        return self._context.task

    @property
    def watermark_us(self) -> int | None:
        """The watermark at which the last epoch ended."""
        return self._context.watermark_us

    def view(self, name: str) -> View:
        """The view of a table of any type."""
        if name not in self._tables:
            raise NotFoundError(
                f"operator {self.task.operator_id} has no such table",
                object_name=name,
                found=", ".join(sorted(self._tables)) or "no table",
                action="declare the table, or use one of those",
            )
        return self._open_views()[name]

    def keyed(self, name: str) -> KeyedView:
        """The view of a `KeyedTable`."""
        return self._view_of_type(name, KeyedView)

    def global_keyed(self, name: str) -> GlobalKeyedView:
        """The view of a `GlobalKeyedTable`."""
        return self._view_of_type(name, GlobalKeyedView)

    def time_key(self, name: str) -> TimeKeyView:
        """The view of a `TimeKeyTable`."""
        return self._view_of_type(name, TimeKeyView)

    def apply_compacted(self, compacted: Sequence[CompactedFiles]) -> None:
        """Swap in merges that were done beside the stream. Call it before any view is used.

        A merge of files that this subtask no longer has is ignored. Raises ConflictError if retention
        has passed the merged files: nothing referred to them, and so they may be gone.
        """
        self._check_not_collected(self.swap_in(compacted))

    def swap_in(self, compacted: Sequence[CompactedFiles]) -> Sequence[FileRef]:
        """Like `apply_compacted`, for merges that retention is known not to have passed.

        Returns the merged files that are in use now.
        """
        if self._views:
            raise InvalidInputError(
                "compacted files are swapped in before any view is used", found=", ".join(self._views)
            )
        swapped_in: list[FileRef] = []
        for merge in compacted:
            if merge.table in self._tables:
                before = self._files[merge.table]
                table = self._tables[merge.table]
                self._files[merge.table] = table.apply_compacted_checkpoint(before, merge, self.task)
                if self._files[merge.table] != before:
                    swapped_in += merge.merged
        return swapped_in

    def _check_not_collected(self, files: Sequence[FileRef]) -> None:
        if files:
            check_not_collected(files, self._context.objects)

    def forget_files(self, gone: Mapping[str, Sequence[FileRef]]) -> None:
        """Drop what this host keeps of files that no table needs any more, by table."""
        for name, files in gone.items():
            if name in self._tables:
                self._tables[name].forget_files(files, self._context)

    def checkpoint(
        self, epoch: Epoch | int, min_epoch: Epoch | int, watermark: EventTimeLike | None, then_stop: bool
    ) -> SubtaskCheckpoint:
        """Store everything that changed since the last checkpoint, and say where it is.

        Each table is serialised, the files are uploaded in parallel, the metadata is collected
        and written, and memory that only epochs before `min_epoch` needed is released. Until the
        epoch is published, nothing refers to any of it.

        `watermark` is a datetime with a time zone, or microseconds since 1970; None leaves it where it
        is. Rows that it passes by more than their retention are not stored. `then_stop` says that the
        stream has ended; if all subtasks say so, the epoch is final.

        Before anything is written, InvalidInputError is raised for an epoch that is not after the last
        one, a watermark that goes back, and a `min_epoch` after the epoch. A checkpoint that failed can be
        tried again.
        """
        epoch, min_epoch = self._require_next_epoch(Epoch(epoch), Epoch(min_epoch))
        watermark_us = self._require_watermark(watermark)
        started_ms = self._context.ambient.now_ms()
        finished = self._write_tables(epoch, watermark_us)
        metadata = self._metadata(epoch, started_ms, watermark_us, then_stop, finished)
        ref, encoded = self._write_metadata(metadata)
        self._begin_next_epoch(epoch, min_epoch, watermark_us, finished)
        return SubtaskCheckpoint(
            operator_id=self.task.operator_id,
            parallelism=self.task.parallelism,
            epoch=epoch,
            attempt=metadata.attempt,
            entry=SubtaskEntry(
                self.task.subtask_index, self.task.key_range, ref, _summary(metadata, finished)
            ),
            watermark_us=watermark_us,
            commit_data={
                name: done.files.commit_data
                for name, done in finished.items()
                if done.files.commit_data is not None
            },
            files_written=sum(file.epoch == epoch for table in metadata.tables for file in table.files),
            then_stop=then_stop,
            metadata=encoded,
        )

    def _require_next_epoch(self, epoch: Epoch, min_epoch: Epoch) -> tuple[Epoch, Epoch]:
        """The epochs, if the epoch follows the last one.

        What was committed with an epoch would be missing from a second checkpoint of it.
        """
        where = f"operator {self.task.operator_id} of job {self.task.job_id}"
        last = self._stored_epoch
        if last is not None and epoch <= last:
            raise InvalidInputError(
                "the epoch of a checkpoint is not after the last one",
                object_name=where,
                found=f"epoch {epoch}",
                expected=f"epoch {last.next()} or later",
                action=f"nothing was written; to repeat epoch {epoch}, load the tables of an earlier one",
            )
        if min_epoch > epoch:
            raise InvalidInputError(
                "min_epoch, the oldest epoch to keep, is after the epoch",
                object_name=where,
                found=f"min_epoch {min_epoch}",
                expected=f"at most epoch {epoch}",
                action="nothing was written",
            )
        return epoch, min_epoch

    def _require_watermark(self, watermark: EventTimeLike | None) -> int | None:
        """The watermark after the epoch, if it is not before the last one."""
        last_us = self._context.watermark_us
        if watermark is None:
            return last_us
        watermark_us = event_time_us(watermark, "timestamp")
        if last_us is not None and watermark_us < last_us:
            raise InvalidInputError(
                "the watermark goes back",
                object_name=f"operator {self.task.operator_id} of job {self.task.job_id}",
                found=f"{instant(watermark_us)} ({watermark_us} microseconds)",
                expected=f"{instant(last_us)} ({last_us} microseconds) or later",
                action="nothing was written; pass the latest watermark so far, or None",
            )
        return watermark_us

    def _write_tables(self, epoch: Epoch, watermark_us: int | None) -> dict[str, FinishedTable]:
        """Serialise and upload. All tables write at the same time; the first failure is raised."""
        context = replace(self._context, watermark_us=watermark_us)
        checkpointers = {
            name: table.epoch_checkpointer(epoch, self._files[name], context)
            for name, table in self._tables.items()
        }
        with timed(MERGE):
            for name, view in self._open_views().items():
                view.checkpoint_into(checkpointers[name])
        with waiting():
            return {name: checkpointer.finish() for name, checkpointer in checkpointers.items()}

    def _metadata(
        self,
        epoch: Epoch,
        started_ms: int,
        watermark_us: int | None,
        then_stop: bool,
        finished: Mapping[str, FinishedTable],
    ) -> SubtaskMetadata:
        task, ambient = self.task, self._context.ambient
        return SubtaskMetadata(
            job_id=task.job_id,
            operator_id=task.operator_id,
            subtask_index=task.subtask_index,
            parallelism=task.parallelism,
            epoch=epoch,
            generation=task.generation,
            attempt=ambient.new_id(),
            key_range=task.key_range,
            started_ms=started_ms,
            finished_ms=ambient.now_ms(),
            watermark_us=watermark_us,
            then_stop=then_stop,
            bytes_written=sum(done.bytes_written for done in finished.values()),
            configs=tuple(self._configs[name] for name in self._tables),
            tables=tuple(done.files for done in finished.values()),
        )

    def _write_metadata(self, metadata: SubtaskMetadata) -> tuple[ObjectRef, bytes | None]:
        """Write the metadata object, or refer to the previous one if it says the same."""
        compared = digest_commit_data(metadata)
        if self._previous is not None:
            ref, stored = self._previous
            if (stored.tables, stored.configs) == (compared.tables, compared.configs):
                return ref, None
        encoded = encode_subtask(metadata)
        ref = self._backend.write_operator_checkpoint_metadata(metadata, encoded)
        self._previous = (ref, compared)
        return ref, encoded

    def _begin_next_epoch(
        self,
        epoch: Epoch,
        min_epoch: Epoch,
        watermark_us: int | None,
        finished: Mapping[str, FinishedTable],
    ) -> None:
        self._stored_epoch = epoch
        self._context = replace(
            self._context, watermark_us=watermark_us, now_us=self._context.ambient.now_ms() * 1000
        )
        # Only now: if anything above failed, the next attempt starts from the same files.
        self._files = {name: done.files for name, done in finished.items()}
        for name, view in self._open_views().items():
            view.begin_next_epoch(finished[name].files, self._context)
            view.forget_before(min_epoch)

    def _open_views(self) -> dict[str, View]:
        """The views of all tables. Opening one reads nothing yet."""
        if not self._views:
            self._views = {
                name: table.open_view(self._files[name], self._context)
                for name, table in self._tables.items()
            }
        return self._views

    def _view_of_type(self, name: str, view_type: type[V]) -> V:
        view = self.view(name)
        if not isinstance(view, view_type):
            raise InvalidInputError(
                f"table is of another type: {name}",
                object_name=f"operator {self.task.operator_id}",
                found=type(view).__name__,
                expected=view_type.__name__,
            )
        return view


def check_not_collected(files: Iterable[FileRef], objects: JobObjects) -> None:
    """Refuse merged files that retention has passed: no epoch refers to them, and so they may be gone."""
    boundary = objects.read_boundary()
    oldest = 0 if boundary is None else boundary.record.oldest
    for file in files:
        # By its name, as retention does: its content may date from an earlier epoch.
        if (parse_object_name(file.path).epoch or 0) < oldest:
            raise ConflictError(
                "retention has passed a merge before it was swapped in",
                object_name=objects.url_of(file.path),
                found=f"before epoch {oldest}, only objects that an epoch refers to are kept",
                action="load the tables again, and merge again",
            )


def _check_names(tables: Sequence[Table]) -> None:
    names = [table.name for table in tables]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError("two tables of an operator have one name", found=", ".join(twice))


def _summary(metadata: SubtaskMetadata, finished: Mapping[str, FinishedTable]) -> StateSummary:
    files = [file for table in metadata.tables for file in table.files]
    return StateSummary(
        file_count=len(files),
        row_count=sum(file.row_count for file in files),
        size_bytes=sum(file.size_bytes for file in files),
        bytes_written=sum(done.bytes_written for done in finished.values()),
    )
