"""`AppendingWriter`: for formats in which the bytes of later rows just follow those of earlier ones.

CSV, JSON lines and sequences of MessagePack are such formats. A subclass encodes rows; buffering,
checkpoints and resuming are here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import pyarrow as pa

from lakestate.sinks.formats.format import finished_file_error
from lakestate.sinks.formats.statistics import FileStatistics
from lakestate.sinks.formats.writer_state import PieceKind, PieceNumbers, UntakenBytes, WriterState


class AppendingWriter(ABC):
    """A resumable writer of one file. See `BatchBufferingWriter` for what each method promises.

    >>> class Numbers(AppendingWriter):
    ...     def encode_rows(self, batch):
    ...         return b"".join(b"%d;" % number for number in batch["n"].to_pylist())
    >>> rows = pa.record_batch({"n": [1, 2]})
    >>> writer = Numbers(rows.schema)
    >>> writer.add_batch_data(rows)
    >>> again = Numbers(rows.schema, writer.checkpoint())
    >>> again.add_batch_data(rows)
    >>> statistics = again.finish()
    >>> statistics.row_count, again.split_to(again.buffered_bytes)
    (4, b'1;2;1;2;')
    """

    block_bytes: ClassVar[int] = 1 << 20
    """Encoded rows become finished bytes in blocks of about this size, and at the end of every epoch."""

    def __init__(self, schema: pa.Schema, state: WriterState | None = None) -> None:
        self.schema = schema
        self._bytes = UntakenBytes()
        self._numbers = PieceNumbers()
        self._rows: list[bytes] = []
        self._row_bytes = 0
        self._row_count = 0
        self._is_finished = False
        if state is not None:
            state.check()
            self._bytes = UntakenBytes(state.start, state.of_kind(PieceKind.BYTES))
            self._numbers = PieceNumbers(state.next_piece)
            self._row_count = state.row_count

    @abstractmethod
    def encode_rows(self, batch: pa.RecordBatch) -> bytes:
        """The bytes of rows. They follow those of the rows before."""

    def encode_block(self, block: bytes) -> bytes:
        """What is written for a block of encoded rows: the place for compression.

        Each block is complete in itself, because the next may be written by another process.
        """
        return block

    def header(self) -> bytes:
        """What the first block begins with."""
        return b""

    def footer(self) -> bytes:
        """What the file ends with. It is not compressed."""
        return b""

    @property
    def buffered_bytes(self) -> int:
        """Finished bytes that have not been taken."""
        return len(self._bytes)

    @property
    def file_bytes(self) -> int:
        """The largest size that the file would have if it ended now, without a footer."""
        return self._bytes.end + self._row_bytes

    def add_batch_data(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        self._require_open("add_batch_data")
        if not len(batch):
            return
        encoded = self.encode_rows(batch)
        self._rows.append(encoded)
        self._row_bytes += len(encoded)
        self._row_count += len(batch)
        if self._row_bytes >= self.block_bytes:
            self.settle()

    def split_to(self, size_bytes: int) -> bytes:
        """Take finished bytes from the front."""
        return self._bytes.take(size_bytes)

    def settle(self) -> None:
        """Turn all encoded rows into finished bytes."""
        if not self._rows:
            return
        is_first = not self._bytes.end
        block = b"".join([self.header(), *self._rows] if is_first else self._rows)
        self._bytes.append(self.encode_block(block))
        self._rows, self._row_bytes = [], 0

    def checkpoint(self) -> WriterState:
        """Everything that another process needs to continue the file."""
        self._require_open("checkpoint")
        self.settle()
        pieces = tuple(self._bytes.checkpoint(self._numbers))
        return WriterState(self._bytes.start, self._row_count, 0, self._numbers.next, pieces)

    def trailing_bytes_for_checkpoint(self) -> tuple[bytes, FileStatistics]:
        """The bytes that would follow those taken so far if the file ended now."""
        self._require_open("trailing_bytes_for_checkpoint")
        self.settle()
        return self._bytes.copy_from(0) + self.footer(), FileStatistics(self._row_count)

    def finish(self) -> FileStatistics:
        """End the file."""
        self._require_open("finish")
        self.settle()
        self._bytes.append(self.footer())
        self._is_finished = True
        return FileStatistics(self._row_count)

    def _require_open(self, call: str) -> None:
        if self._is_finished:
            raise finished_file_error(call)
