"""`ParquetBatchBufferingWriter`: one Parquet file that stays open for as many epochs as it takes.

Rows wait in memory until they fill a row group. A checkpoint keeps a small number of waiting rows as
they are, so that short epochs do not make small row groups; with more, it ends the row group. The writer
knows nothing of stores: finished bytes are taken from it with `split_to`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from lakestate.config import size_bytes
from lakestate.errors import FILE_OR_GO_BACK, CorruptionError, InvalidInputError
from lakestate.sinks.formats.format import finished_file_error
from lakestate.sinks.formats.parquet.footer_statistics import footer_statistics
from lakestate.sinks.formats.parquet.segment import (
    MAGIC,
    ParquetEncoding,
    Segment,
    encode_segment,
    merge_metadata,
    trailing_footer,
)
from lakestate.sinks.formats.statistics import FileStatistics
from lakestate.sinks.formats.writer_state import Piece, PieceKind, PieceNumbers, UntakenBytes, WriterState
from lakestate.tables.arrow.conform import conform_batch

ROW_GROUP_BYTES_DEFAULT = "128MB"
KEPT_ROW_BYTES_DEFAULT = "16MB"


class ParquetBatchBufferingWriter:
    """A resumable writer of one file.

    `row_group_bytes` is the size of the rows in memory, so it also bounds the memory that an open
    file takes. `kept_row_bytes` is the most that a checkpoint keeps as rows.

    >>> import pyarrow.parquet as pq
    >>> rows = pa.record_batch({"n": [1, 2, 3]})
    >>> writer = ParquetBatchBufferingWriter(rows.schema)
    >>> writer.add_batch_data(rows)
    >>> state = writer.checkpoint()
    >>> again = ParquetBatchBufferingWriter.resume(rows.schema, state)
    >>> again.add_batch_data(rows)
    >>> file, statistics = again.close()
    >>> statistics.row_count, pq.read_table(pa.BufferReader(file))["n"].to_pylist()
    (6, [1, 2, 3, 1, 2, 3])
    """

    suffix = "parquet"

    def __init__(
        self,
        schema: pa.Schema,
        settings: ParquetEncoding | None = None,
        *,
        row_group_bytes: int | str = ROW_GROUP_BYTES_DEFAULT,
        kept_row_bytes: int | str = KEPT_ROW_BYTES_DEFAULT,
    ) -> None:
        self._schema = schema
        self._settings = settings or ParquetEncoding()
        self._row_group_bytes = size_bytes(row_group_bytes)
        self._kept_row_bytes = min(size_bytes(kept_row_bytes), self._row_group_bytes)
        self._bytes = UntakenBytes()
        self._bytes.append(MAGIC)
        self._numbers = PieceNumbers()
        self._footers: list[Piece] = []
        self._kept: list[Piece] = []
        self._rows: list[pa.RecordBatch] = []
        self._row_bytes = 0
        self._row_count = 0
        self._encoded_row_bytes = 0
        self._is_finished = False

    @classmethod
    def resume(
        cls,
        schema: pa.Schema,
        state: WriterState,
        settings: ParquetEncoding | None = None,
        *,
        row_group_bytes: int | str = ROW_GROUP_BYTES_DEFAULT,
        kept_row_bytes: int | str = KEPT_ROW_BYTES_DEFAULT,
    ) -> ParquetBatchBufferingWriter:
        """The writer as it was at a checkpoint. Nothing is decoded before it is needed."""
        writer = cls(schema, settings, row_group_bytes=row_group_bytes, kept_row_bytes=kept_row_bytes)
        state.check()
        writer._bytes = UntakenBytes(state.start, state.of_kind(PieceKind.BYTES))
        writer._numbers = PieceNumbers(state.next_piece)
        writer._footers = state.of_kind(PieceKind.FOOTER)
        writer._kept = state.of_kind(PieceKind.ROWS)
        writer._row_bytes = sum(len(piece.content) for piece in writer._kept)
        writer._row_count = state.row_count
        writer._encoded_row_bytes = state.encoded_row_bytes
        return writer

    @property
    def unflushed_bytes(self) -> int:
        """The memory of rows that are not in a row group yet."""
        return self._row_bytes

    @property
    def buffered_bytes(self) -> int:
        """Finished bytes that have not been taken."""
        return len(self._bytes)

    @property
    def row_count(self) -> int:
        """All rows of the file, the waiting ones included."""
        return self._row_count

    @property
    def file_bytes(self) -> int:
        """The size of the file if it ended now; waiting rows are estimated by the ratio so far."""
        if not self._encoded_row_bytes:
            return self._bytes.end + self._row_bytes
        return self._bytes.end + self._row_bytes * self._bytes.end // self._encoded_row_bytes

    def add_batch_data(self, batch: pa.RecordBatch) -> None:
        """Take rows. Ends the row group when it is large enough."""
        self._require_open("add_batch_data")
        # Not later: when the row group ends, the epoch of the rows may be published already.
        batch = conform_batch(batch, self._schema, "write to the file")
        if not len(batch):
            return
        self._rows.append(batch)
        self._row_bytes += batch.nbytes
        self._row_count += len(batch)
        if self._row_bytes >= self._row_group_bytes:
            self._end_row_group()

    def split_to(self, size_bytes: int) -> bytes:
        """Take finished bytes from the front: a part to upload."""
        return self._bytes.take(size_bytes)

    def settle(self) -> None:
        """End the row group if too many rows wait for a checkpoint to keep them."""
        if self._row_bytes > self._kept_row_bytes:
            self._end_row_group()

    def checkpoint(self) -> WriterState:
        """Everything that another process needs to continue the file."""
        self._require_open("checkpoint")
        self.settle()
        if self._rows:
            content = _ipc_stream(self._schema, self._rows)
            self._kept.append(Piece(self._numbers.take(), PieceKind.ROWS, content))
            self._rows = []
        pieces = (*self._footers, *self._kept, *self._bytes.checkpoint(self._numbers))
        return WriterState(
            self._bytes.start, self._row_count, self._encoded_row_bytes, self._numbers.next, pieces
        )

    def trailing_bytes_for_checkpoint(self) -> tuple[bytes, FileStatistics]:
        """The bytes that would follow those taken so far if the file ended now. Changes nothing."""
        self._require_open("trailing_bytes_for_checkpoint")
        footers = [piece.content for piece in self._footers]
        segment = self._encode_rows() if self._row_bytes or not footers else None
        body = b"" if segment is None else segment.body
        footers += [] if segment is None else [segment.footer]
        with _translate_read_errors():
            trailing = b"".join([self._bytes.copy_from(0), body, trailing_footer(footers)])
            return trailing, footer_statistics(merge_metadata(footers))

    def finish(self) -> FileStatistics:
        """End the file: the footer is behind the last row group, waiting to be taken."""
        self._require_open("finish")
        if self._row_bytes or not self._footers:
            self._end_row_group()
        footers = [piece.content for piece in self._footers]
        with _translate_read_errors():
            self._bytes.append(trailing_footer(footers))
            statistics = footer_statistics(merge_metadata(footers))
        if statistics.row_count != self._row_count:
            raise CorruptionError(
                "a file does not hold the rows that were written to it",
                found=f"{statistics.row_count} rows",
                expected=f"{self._row_count} rows",
            )
        self._is_finished = True
        return statistics

    def close(self) -> tuple[bytes, FileStatistics]:
        """End the file and take everything that is left of it."""
        statistics = self.finish()
        return self.split_to(self.buffered_bytes), statistics

    def _require_open(self, call: str) -> None:
        if self._is_finished:
            raise finished_file_error(call)

    def _end_row_group(self) -> None:
        segment = self._encode_rows()
        self._bytes.append(segment.body)
        self._footers.append(Piece(self._numbers.take(), PieceKind.FOOTER, segment.footer))
        self._encoded_row_bytes += self._row_bytes
        self._kept, self._rows, self._row_bytes = [], [], 0

    def _encode_rows(self) -> Segment:
        with _translate_read_errors():
            batches = [batch for piece in self._kept for batch in _ipc_batches(piece)] + self._rows
            # A file that is about to be finished may hold rows of an older schema.
            rows = pa.Table.from_batches(batches, None if batches else self._schema)
        with _translate_encoding_errors():
            return encode_segment(rows, self._bytes.end, self._settings)


@contextmanager
def _translate_read_errors() -> Iterator[None]:
    """Pieces come from storage: if they cannot be read, they are damaged."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, RuntimeError) as cause:
        raise CorruptionError(
            "the state of an open file cannot be read",
            found=str(cause)[:200],
            action=FILE_OR_GO_BACK,
        ) from cause


@contextmanager
def _translate_encoding_errors() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as cause:
        raise InvalidInputError(
            "rows cannot be written as Parquet",
            found=str(cause)[:200],
            action="cast, correct or drop the column before the sink",
        ) from cause


def _ipc_stream(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> bytes:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(stream.getvalue().to_pybytes())


def _ipc_batches(piece: Piece) -> list[pa.RecordBatch]:
    with pa.ipc.open_stream(pa.BufferReader(piece.content)) as reader:
        batches = list(reader)
    for batch in batches:
        # Without validation, offsets that point outside a buffer would be followed.
        batch.validate(full=True)
    return batches
