"""`ParquetLocalWriter`: a Parquet file that grows under a hidden name in a local directory."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa

from lakestate.sinks.files.local_output import LocalOutput
from lakestate.sinks.files.pre_commit import FilePreCommit, LocalFile
from lakestate.sinks.formats.parquet.segment import ParquetEncoding
from lakestate.sinks.formats.parquet.writer import KEPT_ROW_BYTES_DEFAULT, ParquetBatchBufferingWriter
from lakestate.sinks.formats.writer_state import WriterState


class CurrentFileRecovery(msgspec.Struct, frozen=True):
    """A local file between two processes: how much of it counts, and what is not in it yet."""

    temporary: str
    final: str
    position: int
    state: WriterState
    crc32: int | None = None


class WriterStats(msgspec.Struct, frozen=True):
    """What a writer has done so far."""

    row_count: int
    bytes_written: int
    bytes_waiting: int


class ParquetLocalWriter:
    """One Parquet file in a local directory, written over many epochs.

    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> rows = pa.record_batch({"n": [1, 2]})
    >>> writer = ParquetLocalWriter(root, "hidden.parquet", "final.parquet", rows.schema)
    >>> _ = writer.write_batch(rows)
    >>> record = writer.checkpoint()
    >>> writer.abandon()
    >>> again = ParquetLocalWriter.recover(root, record, rows.schema, attempt="2")
    >>> finished = again.close()
    >>> LocalOutput(root).publish("hidden.parquet", finished.path, finished.size_bytes)
    >>> [file.name for file in root.iterdir() if file.is_file()], finished.statistics.row_count
    (['final.parquet'], 2)
    """

    suffix = ParquetBatchBufferingWriter.suffix

    def __init__(
        self,
        root: Path,
        temporary: str,
        final: str,
        schema: pa.Schema,
        settings: ParquetEncoding | None = None,
        *,
        kept_row_bytes: int | str = KEPT_ROW_BYTES_DEFAULT,
    ) -> None:
        self._final = final
        self._file = LocalOutput(root).create(temporary)
        self._writer = ParquetBatchBufferingWriter(schema, settings, kept_row_bytes=kept_row_bytes)

    @classmethod
    def recover(
        cls,
        root: Path,
        record: CurrentFileRecovery,
        schema: pa.Schema,
        settings: ParquetEncoding | None = None,
        *,
        attempt: str,
        kept_row_bytes: int | str = KEPT_ROW_BYTES_DEFAULT,
    ) -> ParquetLocalWriter:
        """The writer as it was. What was written after the record does not count.

        If there are such bytes, or another process still has the file open, the bytes of the record are
        copied to a file named after this attempt.
        """
        writer = cls.__new__(cls)
        writer._final = record.final
        copy = f"{record.final.rpartition('/')[2]}.{attempt}"
        writer._file = LocalOutput(root).reopen(record.temporary, record.position, record.crc32, copy)
        writer._writer = ParquetBatchBufferingWriter.resume(
            schema, record.state, settings, kept_row_bytes=kept_row_bytes
        )
        return writer

    def write_batch(self, batch: pa.RecordBatch) -> int:
        """Take rows; the number of bytes that wait to be written."""
        self._writer.add_batch_data(batch)
        return self._writer.buffered_bytes

    def sync(self) -> int:
        """Write and make durable what is finished; the length of the file."""
        self._file.append(self._writer.split_to(self._writer.buffered_bytes))
        self._file.sync()
        return self._file.position

    def checkpoint(self) -> CurrentFileRecovery:
        """How another process continues the file. This writer may continue as well."""
        self._writer.settle()
        self.sync()
        state = self._writer.checkpoint()
        file = self._file
        return CurrentFileRecovery(file.path.name, self._final, file.position, state, file.crc32)

    def trailing_bytes(self) -> bytes:
        """The bytes that would complete the file if it ended now."""
        return self._writer.trailing_bytes_for_checkpoint()[0]

    def close(self) -> FilePreCommit:
        """End the file; only a rename is left to do."""
        statistics = self._writer.finish()
        self.sync()
        self._file.close()
        content = LocalFile(self._file.path.name, self._file.crc32)
        return FilePreCommit(self._final, self._file.position, content, statistics)

    def abandon(self) -> None:
        """Close the file as it is."""
        self._file.close()

    def stats(self) -> WriterStats:
        """Rows and bytes so far."""
        waiting = self._writer.buffered_bytes + self._writer.unflushed_bytes
        return WriterStats(self._writer.row_count, self._file.position, waiting)
