"""One file that this epoch writes to: its format writer, its destination and its record.

With `Roll(visible=…)`, rows go into the open file and into a small one beside it. The small one is finished
in the rhythm that the user asks for, and another is begun. When the open file is finished, its rows are
exactly those of its small ones. So the commit can put it in their place or, if somebody has touched those,
leave it out: readers see each row once either way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from lakestate.errors import CorruptionError
from lakestate.sinks.files.destination import FileWriter
from lakestate.sinks.files.file_log import FileLog
from lakestate.sinks.files.open_files import OpenFile, OpenFileState, stored_pieces
from lakestate.sinks.files.pre_commit import FilePreCommit, LocalFile
from lakestate.sinks.files.snapshots import Snapshot
from lakestate.sinks.formats.writer_state import WriterState
from lakestate.sinks.rolling import FileAge, RollReason


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What does not change while a file is open."""

    file_id: str
    path: str
    partition: str
    format: str
    opened_ms: int
    partition_end_us: int | None

    @classmethod
    def of(cls, record: OpenFile) -> FileIdentity:
        """The identity in a record."""
        return cls(
            record.file_id,
            record.path,
            record.partition,
            record.format,
            record.opened_ms,
            record.partition_end_us,
        )


@dataclass(frozen=True, slots=True)
class FileCheckpoint:
    """A file that stays open: its record, what it continues from, and the copy that was made of it."""

    record: OpenFile
    state: OpenFileState
    copy: FilePreCommit | None


class ActiveFile:
    """A file while rows are added to it, or while it is being finished."""

    def __init__(
        self,
        identity: FileIdentity,
        writer: FileWriter,
        written_ms: int,
        row_count: int = 0,
        snapshot: Snapshot | None = None,
    ) -> None:
        self.identity = identity
        self._writer = writer
        self._written_ms = written_ms
        self.row_count = row_count
        """Rows so far, in all epochs."""
        self.snapshot = snapshot
        """The copy that the state refers to."""
        self.shown: tuple[str, ...] = ()
        """The paths of small files that show rows of it."""
        self.shown_rows = 0
        self.preview: ActiveFile | None = None
        """The small file that has the rows which readers cannot see yet, if they are to."""

    @property
    def age(self) -> FileAge:
        """What a roll policy looks at."""
        identity = self.identity
        return FileAge(
            self._writer.file_bytes, identity.opened_ms, self._written_ms, identity.partition_end_us
        )

    @property
    def must_roll(self) -> bool:
        """True if the file cannot take much more."""
        return self._writer.must_roll()

    @property
    def can_snapshot(self) -> bool:
        """Whether a complete copy can be made of it while it is open."""
        return self._writer.can_snapshot()

    def add(self, rows: pa.RecordBatch, now_ms: int) -> None:
        """Take rows."""
        self._writer.write_batch(rows)
        self.row_count += len(rows)
        self._written_ms = now_ms

    def begin_checkpoint(self) -> None:
        """Send what can be sent; this may continue in the background."""
        self._writer.begin_checkpoint()
        if self.preview is not None:
            self.preview.begin_checkpoint()

    def checkpoint(self, *, with_snapshot: bool) -> FileCheckpoint:
        """Wait until everything is durable; returns how to continue."""
        recovery = self._writer.checkpoint()
        copy = self._writer.snapshot() if with_snapshot else None
        self._writer.release()
        preview = None if self.preview is None else self.preview.checkpoint(with_snapshot=False)
        identity, state = self.identity, recovery.state
        record = OpenFile(
            file_id=identity.file_id,
            path=identity.path,
            partition=identity.partition,
            format=identity.format,
            resume_point=recovery.resume_point,
            opened_ms=identity.opened_ms,
            written_ms=self._written_ms,
            size_bytes=self._writer.file_bytes,
            partition_end_us=identity.partition_end_us,
            start=state.start,
            row_count=state.row_count,
            encoded_row_bytes=state.encoded_row_bytes,
            next_piece=state.next_piece,
            pieces=stored_pieces(state.pieces),
            snapshot=None if copy is None else _snapshot(copy, state),
            shown=len(self.shown),
            shown_rows=self.shown_rows,
            preview=None if preview is None else preview.record,
        )
        shown = None if preview is None else preview.state.writer
        return FileCheckpoint(record, OpenFileState(state, shown, self.shown), copy)

    def take_preview(self) -> ActiveFile:
        """The small file with rows of this one, which becomes visible now."""
        preview, self.preview = self.preview, None
        assert preview is not None, "a file shows rows that readers cannot see yet"
        self.shown = (*self.shown, preview.identity.path)
        self.shown_rows += preview.row_count
        return preview

    def drop_preview(self) -> None:
        """Give up the small file: readers see its rows in the file itself. Clean-up removes what it left."""
        if self.preview is not None:
            self.preview.abandon()
            self.preview = None

    def finish(self) -> None:
        """End the file and send the rest of it; this may continue in the background."""
        self._writer.finish()

    def pre_commit(self) -> FilePreCommit:
        """Wait until the finished file is durable; returns how to make it visible."""
        if self.shown and self.shown_rows != self.row_count:
            raise CorruptionError(
                "small files do not show all rows of the file that is to take their place",
                object_name=self.identity.path,
                found=f"{self.shown_rows} rows",
                expected=f"{self.row_count} rows",
            )
        return msgspec.structs.replace(self._writer.close(), format=self.identity.format, replaces=self.shown)

    def abandon(self) -> None:
        """Release local resources after a failure."""
        self._writer.abandon()
        if self.preview is not None:
            self.preview.abandon()


class Previews:
    """The small files that one subtask finishes in one epoch."""

    def __init__(self, log: FileLog) -> None:
        self._log = log
        self._finished: list[tuple[str, ActiveFile]] = []

    def show(self, file: ActiveFile) -> None:
        """Finish the small file of an open one: it becomes visible with the epoch."""
        preview = file.take_preview()
        self._finished.append((file.identity.path, preview))
        rows, size_bytes = preview.row_count, preview.age.size_bytes
        self._log.rolled(preview.identity.path, rows, size_bytes, RollReason.VISIBLE)
        preview.finish()

    def pre_commits(self) -> Iterator[FilePreCommit]:
        """Wait until they are durable; how to make each visible."""
        for path, preview in self._finished:
            yield msgspec.structs.replace(preview.pre_commit(), preview_of=path)

    def abandon(self) -> None:
        """Release local resources after a failure."""
        for _, preview in self._finished:
            preview.abandon()


def _snapshot(copy: FilePreCommit, state: WriterState) -> Snapshot:
    crc32 = copy.content.crc32 if isinstance(copy.content, LocalFile) else None
    return Snapshot(copy.path, copy.size_bytes, state.position, crc32)
