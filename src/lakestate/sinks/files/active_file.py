"""One file that this epoch writes to: its format writer, its destination and its record."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakestate.errors import CorruptionError, InvalidInputError
from lakestate.sinks.files.destination import Destination
from lakestate.sinks.files.open_files import OpenFile, stored_pieces
from lakestate.sinks.files.pre_commit import FilePreCommit
from lakestate.sinks.formats.format import BatchBufferingWriter
from lakestate.sinks.formats.statistics import FileStatistics
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


class ActiveFile:
    """A file while rows are added to it, or while it is being finished."""

    def __init__(
        self,
        identity: FileIdentity,
        writer: BatchBufferingWriter,
        destination: Destination,
        written_ms: int,
        row_count: int = 0,
    ) -> None:
        self.identity = identity
        self._writer = writer
        self._destination = destination
        self._written_ms = written_ms
        self.row_count = row_count
        """Rows so far, in all epochs."""
        self._statistics: FileStatistics | None = None

    @property
    def age(self) -> FileAge:
        """What a roll policy looks at."""
        identity = self.identity
        return FileAge(
            self._writer.file_bytes, identity.opened_ms, self._written_ms, identity.partition_end_us
        )

    @property
    def must_roll(self) -> bool:
        """True if the destination cannot accept much more."""
        return self._destination.must_roll()

    def add(self, rows: pa.RecordBatch, now_ms: int) -> None:
        """Take rows."""
        self._writer.add_batch_data(rows)
        self.row_count += len(rows)
        self._written_ms = now_ms
        self._destination.accept(self._writer)

    def begin_checkpoint(self) -> None:
        """Send what can be sent; this may continue in the background."""
        self._writer.settle()
        self._destination.accept(self._writer)

    def checkpoint(self) -> tuple[OpenFile, WriterState]:
        """Wait until everything is durable; returns how to continue."""
        resume_point = self._destination.checkpoint()
        state = self._writer.checkpoint()
        identity = self.identity
        record = OpenFile(
            file_id=identity.file_id,
            path=identity.path,
            partition=identity.partition,
            format=identity.format,
            resume_point=resume_point,
            opened_ms=identity.opened_ms,
            written_ms=self._written_ms,
            size_bytes=self._writer.file_bytes,
            partition_end_us=identity.partition_end_us,
            start=state.start,
            row_count=state.row_count,
            encoded_row_bytes=state.encoded_row_bytes,
            next_piece=state.next_piece,
            pieces=stored_pieces(state.pieces),
        )
        if state.start != self._destination.size_bytes:
            raise CorruptionError(
                "the writer of a file format has lost count of the bytes that were taken from it",
                object_name=identity.path,
                found=f"{state.start} bytes",
                expected=f"{self._destination.size_bytes} bytes",
            )
        return record, state

    def finish(self) -> None:
        """End the file and send the rest of it; this may continue in the background."""
        self._statistics = self._writer.finish()
        self._destination.accept_all(self._writer)

    def pre_commit(self) -> FilePreCommit:
        """Wait until the finished file is durable; returns how to make it visible."""
        if self._statistics is None:
            raise InvalidInputError(
                "a file that is to be committed has no statistics",
                object_name=self.identity.path,
                action="return FileStatistics from `finish` of the writer of a file format",
            )
        content = self._destination.complete()
        return FilePreCommit(
            self.identity.path,
            self._destination.size_bytes,
            content,
            self._statistics,
            self.identity.format,
        )

    def abandon(self) -> None:
        """Release local resources."""
        self._destination.abandon()
