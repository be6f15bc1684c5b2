"""One file that this epoch writes to: its format writer, its destination and its record."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pyarrow as pa

from lakestate.sinks.files.destination import FileWriter
from lakestate.sinks.files.open_files import OpenFile, stored_pieces
from lakestate.sinks.files.pre_commit import FilePreCommit, LocalFile
from lakestate.sinks.files.snapshots import Snapshot
from lakestate.sinks.formats.writer_state import WriterState
from lakestate.sinks.rolling import FileAge


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
    """A file that stays open: its record, the state of its writer, and the copy that was made of it."""

    record: OpenFile
    state: WriterState
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

    def checkpoint(self, *, with_snapshot: bool) -> FileCheckpoint:
        """Wait until everything is durable; returns how to continue."""
        recovery = self._writer.checkpoint()
        copy = self._writer.snapshot() if with_snapshot else None
        self._writer.release()
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
        )
        return FileCheckpoint(record, state, copy)

    def finish(self) -> None:
        """End the file and send the rest of it; this may continue in the background."""
        self._writer.finish()

    def pre_commit(self) -> FilePreCommit:
        """Wait until the finished file is durable; returns how to make it visible."""
        return msgspec.structs.replace(self._writer.close(), format=self.identity.format)

    def abandon(self) -> None:
        """Release local resources after a failure."""
        self._writer.abandon()


def _snapshot(copy: FilePreCommit, state: WriterState) -> Snapshot:
    crc32 = copy.content.crc32 if isinstance(copy.content, LocalFile) else None
    return Snapshot(copy.path, copy.size_bytes, state.position, crc32)
