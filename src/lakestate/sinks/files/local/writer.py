"""`LocalWriter`: one file of any format that grows under a hidden name in a local directory.

The format writer encodes rows, the hidden file keeps their bytes. A checkpoint says how many bytes count
and what is not in the file yet, so any process can continue it.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from lakestate.sinks.files.destination import (
    CurrentFileRecovery,
    LocalResumePoint,
    require_all_taken,
    require_statistics,
)
from lakestate.sinks.files.local.growing_file import GrowingFile
from lakestate.sinks.files.pre_commit import FilePreCommit, LocalFile
from lakestate.sinks.formats.format import BatchBufferingWriter
from lakestate.sinks.formats.statistics import FileStatistics


class WriterStats(msgspec.Struct, frozen=True):
    """What a writer has done so far."""

    bytes_written: int
    """In the hidden file, in all epochs."""
    bytes_waiting: int
    """Finished bytes that are not in it yet."""
    file_bytes: int
    """The approximate size of the file if it ended now."""


class LocalWriter:
    """One file in a local directory, written over many epochs. See `FileWriter` for what is promised."""

    def __init__(self, file: GrowingFile, writer: BatchBufferingWriter) -> None:
        self._file = file
        self._writer = writer
        self._statistics: FileStatistics | None = None
        self._is_finished = False

    @property
    def file_bytes(self) -> int:
        """The approximate size of the file if it ended now."""
        return self._writer.file_bytes

    def must_roll(self) -> bool:
        """A local file can always grow."""
        return False

    def write_batch(self, batch: pa.RecordBatch) -> int:
        """Take rows, and append what is finished; the length of the hidden file."""
        self._writer.add_batch_data(batch)
        return self._append()

    def begin_checkpoint(self) -> None:
        """Append what need not wait."""
        self._writer.settle()
        self._append()

    def sync(self) -> int:
        """Append what is finished and make it durable; the length of the hidden file."""
        self._append()
        self._file.sync()
        return self._file.position

    def checkpoint(self) -> CurrentFileRecovery:
        """How another process continues the file. This writer may continue as well."""
        self.begin_checkpoint()
        self._file.sync()
        state = self._writer.checkpoint()
        require_all_taken(self._file.path, state, self._file.position)
        resume_point = LocalResumePoint(self._file.temporary, self._file.position, self._file.crc32)
        return CurrentFileRecovery(resume_point, state)

    def can_snapshot(self) -> bool:
        """All of a local file can be read."""
        return True

    def snapshot(self) -> FilePreCommit:
        """A complete copy: the bytes in the hidden file, and those that would end it now."""
        trailing, statistics = self._writer.trailing_bytes_for_checkpoint()
        return self._file.take_snapshot(trailing, statistics.row_count)

    def finish(self) -> None:
        """End the file, make it durable and close it: an epoch may finish more files than can be open."""
        self._is_finished = True
        self._statistics = self._writer.finish()
        self._append()
        self._file.finish()

    def close(self) -> FilePreCommit:
        """End the file, unless that is done; only a rename is left to do."""
        if not self._is_finished:
            self.finish()
        self._file.require_place()
        statistics = require_statistics(self._file.path, self._statistics)
        content = LocalFile(self._file.temporary, self._file.crc32)
        return FilePreCommit(self._file.path, self._file.position, content, statistics)

    def release(self) -> None:
        """Close the hidden file as it is."""
        self._file.close()

    def abandon(self) -> None:
        """Close the hidden file without what this attempt added to it."""
        self._file.take_back()

    def stats(self) -> WriterStats:
        """Bytes so far."""
        return WriterStats(self._file.position, self._writer.buffered_bytes, self._writer.file_bytes)

    def _append(self) -> int:
        if self._writer.buffered_bytes:
            self._file.append(self._writer.split_to(self._writer.buffered_bytes))
        return self._file.position
