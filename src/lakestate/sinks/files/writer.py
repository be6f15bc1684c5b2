"""`FileSinkWriter`: the files of one subtask in one epoch.

A partition has one open file at a time. A file that an epoch does not touch is not even opened: its
state is carried forward as it is. Nothing here makes a file visible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakestate.errors import IncompatibleStateError, InvalidInputError
from lakestate.sinks.files.active_file import ActiveFile, FileIdentity, Previews
from lakestate.sinks.files.destination import CurrentFileRecovery, FileEncoding, open_reference
from lakestate.sinks.files.file_log import FileLog
from lakestate.sinks.files.local.attempts import Attempt
from lakestate.sinks.files.names import owned_file_id, sink_fingerprint
from lakestate.sinks.files.open_files import OPEN_FILES, OpenFile, OpenFiles
from lakestate.sinks.files.pre_commit import OpenReference, PreCommit
from lakestate.sinks.formats.row_schema import check_values
from lakestate.sinks.formats.writer_state import WriterState
from lakestate.sinks.rolling import FileAge, RollReason, representative_timestamp
from lakestate.storage.object_path import PART_BYTES_MAX, PATH_BYTES_MAX, RESERVED, require_key
from lakestate.tables.arrow.conform import conform_batch

if TYPE_CHECKING:
    from lakestate.sinks.files.sink import FileSink
    from lakestate.sinks.sink import SinkContext

PRE_COMMITS = "pre_commits"
SLICE_BYTES_MAX = 4 << 20
"""Rows are added in slices of about this size, so that a file ends near its intended size."""


class FileSinkWriter:
    """See `SinkWriter` for what each method promises."""

    def __init__(self, sink: FileSink, context: SinkContext) -> None:
        self._sink = sink
        self._context = context
        self._partitioning = sink.partitioning
        self._partitioning.check(context.schema, context.event_time)
        self._schema = sink.file_schema(context.schema, context.event_time)
        self._format = sink.format_key(self._schema)
        self._encoding = FileEncoding(sink.file_format, self._schema)
        task = context.task
        self._fingerprint = sink_fingerprint(task.job_id, context.sink_id or task.operator_id, task.state_id)
        self._log = FileLog(context, self._fingerprint)
        self._destinations = sink.destinations(
            Attempt(context.epoch, task.generation, context.ambient.new_id()),
            sink.snapshot_naming(self._fingerprint, context.epoch, task.subtask_index),
        )
        self._state = OpenFiles(context.tables.keyed(OPEN_FILES))
        self._idle: dict[str, OpenFile] = {}
        self._replaced: list[tuple[OpenFile, RollReason]] = []
        for record in self._state.records():
            self._adopt(record)
        self._active: dict[str, ActiveFile] = {}
        self._finished: list[ActiveFile] = []
        self._previews = Previews(self._log)

    def write(self, batch: pa.RecordBatch) -> None:
        """Put rows into the files of their partitions."""
        check_values(batch)
        event_time = self._context.event_time
        for partition, rows in self._partitioning.split(batch, event_time):
            time_us = self._representative_us(rows)
            written = conform_batch(rows, self._schema, "write to the file")
            for part in _slices(written):
                self._add(partition, part, time_us)

    def finish(self, *, finish_files: bool) -> None:
        """Finish files that are due, checkpoint the others, and leave both in the state tables."""
        self._roll_due(finish_files)
        for file in self._active.values():
            file.begin_checkpoint()
        wanted = self._sink.snapshot_open_files
        kept = [file.checkpoint(with_snapshot=wanted) for file in self._active.values()]
        pre_commits = (*self._previews.pre_commits(), *(file.pre_commit() for file in self._finished))
        self._log.finished(pre_commits)
        self._destinations.close()
        for each in kept:
            self._state.keep(each.record, each.state)
        for file in self._finished:
            self._state.forget(file.identity.file_id)
        self._state.save()
        still_open = [*(each.record for each in kept), *self._idle.values()]
        touched = (*self._active.values(), *self._finished)
        self._hand_over(
            PreCommit(
                fingerprint=self._fingerprint,
                finished=pre_commits,
                open=tuple(_references(still_open)),
                subtask_index=self._context.task.subtask_index,
                snapshots=tuple(each.copy for each in kept if each.copy is not None),
                dropped=tuple(file.snapshot.path for file in touched if file.snapshot is not None),
                due_ms=min(
                    (due for each in still_open if (due := self._due_ms(each)) is not None), default=None
                ),
            )
        )

    def abandon(self) -> None:
        """Close files and end threads."""
        for file in (*self._active.values(), *self._finished):
            file.abandon()
        self._previews.abandon()
        self._destinations.close()

    def _adopt(self, record: OpenFile) -> None:
        """Take over a file. After rescaling there may be two of one partition: the newer one continues."""
        if record.format != self._format:
            _check_format(record, self._format)
            self._replaced.append((record, RollReason.SCHEMA))
            return
        if record.has_previews is (self._sink.roll.visible is None):
            # The setting is new, or gone: either all rows of a file are shown, or none.
            self._replaced.append((record, RollReason.VISIBLE))
            return
        older = self._idle.pop(record.partition, None)
        if older is not None:
            self._replaced.append((older, RollReason.RESCALE))
        self._idle[record.partition] = record

    def _add(self, partition: str, rows: pa.RecordBatch, time_us: int | None) -> None:
        file = self._file_of(partition, time_us)
        now_ms = self._context.ambient.now_ms()
        file.add(rows, now_ms)
        if self._sink.roll.visible is not None:
            if file.preview is None:
                file.preview = self._begin_preview(file.identity, now_ms)
            file.preview.add(rows, now_ms)
        if file.age.size_bytes >= self._sink.roll.bytes_max:
            self._roll(partition, RollReason.BYTES)
        elif file.must_roll:
            self._roll(partition, RollReason.PARTS)

    def _file_of(self, partition: str, time_us: int | None) -> ActiveFile:
        file = self._active.get(partition)
        if file is None:
            record = self._idle.pop(partition, None)
            file = self._begin_file(partition, time_us) if record is None else self._resume_file(record)
            self._active[partition] = file
        return file

    def _begin_file(self, partition: str, time_us: int | None) -> ActiveFile:
        while len(self._active) + len(self._idle) >= self._sink.open_files_max:
            self._roll_oldest()
        now_ms = self._context.ambient.now_ms()
        file_id, path = self._new_file(partition)
        identity = FileIdentity(file_id, path, partition, self._format, now_ms, self._end_us(time_us))
        return ActiveFile(identity, self._destinations.begin(path, self._encoding), now_ms)

    def _begin_preview(self, file: FileIdentity, now_ms: int) -> ActiveFile:
        """A small file beside an open one. Its state is in the rows of that one, and moves with them."""
        _, path = self._new_file(file.partition)
        identity = replace(file, path=path, opened_ms=now_ms)
        return ActiveFile(identity, self._destinations.begin(path, self._encoding), now_ms)

    def _new_file(self, partition: str) -> tuple[str, str]:
        """The id and the path of a file that this epoch begins."""
        task = self._context.task
        file_id = owned_file_id(self._context.ambient.new_id(), task)
        name = self._sink.naming.name(self._fingerprint, self._context.epoch, task.subtask_index, file_id)
        path = self._output_path(partition, name)
        self._log.opened(path)
        return file_id, path

    def _output_path(self, partition: str, name: str) -> str:
        """The path, if a file can have it. At the commit it would be too late to refuse it."""
        path = f"{partition}/{name}" if partition else name
        naming = self._sink.snapshot_naming(
            self._fingerprint, self._context.epoch, self._context.task.subtask_index
        )
        try:
            if naming is not None:
                require_key(self._sink.url, naming.path(path).removeprefix(f"{RESERVED}/"))
            return require_key(self._sink.url, path)
        except InvalidInputError as cause:
            if not partition:
                raise
            raise _unnameable_partition_error(partition, cause) from cause

    def _resume_file(self, record: OpenFile) -> ActiveFile:
        state = self._state.state(record)
        file = self._resume(record, state.writer)
        file.shown, file.shown_rows = state.shown, record.shown_rows
        if record.preview is not None and state.preview is not None:
            file.preview = self._resume(record.preview, state.preview)
        return file

    def _resume(self, record: OpenFile, state: WriterState) -> ActiveFile:
        recovery = CurrentFileRecovery(record.resume_point, state, record.snapshot)
        writer = self._destinations.resume(record.path, recovery, self._encoding)
        identity = FileIdentity.of(record)
        return ActiveFile(identity, writer, record.written_ms, record.row_count, record.snapshot)

    def _roll_due(self, finish_files: bool) -> None:
        for record, replaced in self._replaced:
            self._finish_file(self._resume_file(record), replaced)
        self._replaced = []
        ages = {partition: _age(record) for partition, record in self._idle.items()}
        ages |= {partition: file.age for partition, file in self._active.items()}
        now_ms, watermark_us = self._now_ms, self._context.watermark_us
        for partition, age in ages.items():
            reason = self._sink.roll.reason_now(age, now_ms, watermark_us)
            if finish_files or reason is not None:
                self._roll(partition, reason or RollReason.STOP)
        if self._sink.snapshot_open_files:
            self._prepare_snapshots()
        self._show_due(now_ms)

    def _show_due(self, now_ms: int) -> None:
        """Finish the small files whose rows readers have waited for long enough."""
        roll = self._sink.roll
        for partition, record in [*self._idle.items()]:
            if record.preview is not None and roll.is_due_to_show(record.preview.opened_ms, now_ms):
                self._active[partition] = self._resume_file(self._idle.pop(partition))
        for file in self._active.values():
            if file.preview is not None and roll.is_due_to_show(file.preview.identity.opened_ms, now_ms):
                self._previews.show(file)

    @property
    def _now_ms(self) -> int:
        """The time of the epoch: no earlier than the driver's, which may have run it because of that time."""
        return max(self._context.ambient.now_ms(), self._context.processing_time_us // 1000)

    def _due_ms(self, record: OpenFile) -> int | None:
        shows_since_ms = None if record.preview is None else record.preview.opened_ms
        return self._sink.roll.due_ms(_age(record), shows_since_ms)

    def _prepare_snapshots(self) -> None:
        """Open files that have no copy yet, and finish those of which none can be made."""
        for partition, record in [*self._idle.items()]:
            if record.snapshot is None:
                self._active[partition] = self._resume_file(self._idle.pop(partition))
        for partition, file in [*self._active.items()]:
            if not file.can_snapshot:
                self._roll(partition, RollReason.SNAPSHOT)

    def _roll_oldest(self) -> None:
        opened = {partition: record.opened_ms for partition, record in self._idle.items()}
        opened |= {partition: file.identity.opened_ms for partition, file in self._active.items()}
        self._roll(min(opened, key=lambda partition: opened[partition]), RollReason.OPEN_FILES)

    def _roll(self, partition: str, reason: RollReason) -> None:
        file = self._active.pop(partition, None)
        self._finish_file(self._resume_file(self._idle.pop(partition)) if file is None else file, reason)

    def _finish_file(self, file: ActiveFile, reason: RollReason) -> None:
        self._finished.append(file)
        if file.shown and file.preview is not None:
            # So the small files hold exactly its rows, and it can take their place.
            self._previews.show(file)
        file.drop_preview()
        self._log.rolled(file.identity.path, file.row_count, file.age.size_bytes, reason)
        file.finish()

    def _hand_over(self, pre_commit: PreCommit) -> None:
        if pre_commit.finished or pre_commit.open:
            self._context.tables.global_keyed(PRE_COMMITS).set_commit_data(pre_commit.encode())

    def _representative_us(self, rows: pa.RecordBatch) -> int | None:
        event_time = self._context.event_time
        if event_time is None or self._partitioning.event_time is None:
            return None
        return representative_timestamp(rows.column(event_time))

    def _end_us(self, time_us: int | None) -> int | None:
        pattern = self._partitioning.event_time
        return None if pattern is None or time_us is None else pattern.end_us(time_us)


def _check_format(record: OpenFile, format_now: str) -> None:
    """A file with other columns can be finished; one of another kind cannot: it would lack its end."""
    # The kind is in front of the digest of the columns. A table format may put more in front of it.
    found, expected = (name.rpartition("-")[0].rpartition("-")[2] for name in (record.format, format_now))
    if found != expected:
        raise IncompatibleStateError(
            "a file was begun in another format than the sink has now",
            object_name=record.path,
            found=found,
            expected=expected,
            action="go back to that format, stop the job with finish_files=True, then change it",
        )


def _unnameable_partition_error(partition: str, cause: InvalidInputError) -> InvalidInputError:
    longest = max(partition.split("/"), key=lambda folder: len(folder.encode()))
    return InvalidInputError(
        "the path of a partition is not possible",
        object_name=f"{partition[:80]}…",
        found=f"{cause.found} in {longest[:60]}… ({len(longest.encode())} bytes)",
        expected=f"folders of at most {PART_BYTES_MAX} bytes, {PATH_BYTES_MAX} with the store's own path",
        action="partition by another column, or by a shortened one",
    )


def _slices(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    count = max(1, -(-rows.nbytes // SLICE_BYTES_MAX))
    size = max(1, -(-len(rows) // count))
    for start in range(0, len(rows), size):
        yield rows.slice(start, size)


def _age(record: OpenFile) -> FileAge:
    return FileAge(record.size_bytes, record.opened_ms, record.written_ms, record.partition_end_us)


def _references(records: list[OpenFile]) -> Iterator[OpenReference]:
    parts = (part for record in records for part in record.parts)
    return (open_reference(part.path, part.resume_point, part.snapshot) for part in parts)
