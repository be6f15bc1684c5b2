"""`JsonLinesWriter`: one file of JSON lines that stays open for as many epochs as it takes.

Compressed files are a row of complete gzip members or Zstandard frames, which every reader takes
as one stream; so a file can go on in another process without the compressor's memory.
"""

from __future__ import annotations

import gzip
from enum import Enum
from typing import Any

import msgspec
import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.sinks.files.writer_state import PieceKind, PieceNumbers, UntakenBytes, WriterState
from lakestate.sinks.formats.row_schema import conformed_rows
from lakestate.sinks.formats.statistics import FileStatistics

BLOCK_BYTES = 1 << 20
"""Lines are compressed in blocks of this size, and at the end of every epoch."""


class JsonCompression(Enum):
    """How files of JSON lines are compressed; the value is what readers know it by."""

    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"

    @property
    def extension(self) -> str:
        """What file names end with, so that readers know how to open them."""
        return {"none": "json", "gzip": "json.gz", "zstd": "json.zst"}[self.value]


_ENCODER = msgspec.json.Encoder(decimal_format="number")


class JsonLinesWriter:
    """A resumable writer of one file. Numbers that are not finite are written as null.

    >>> rows = pa.record_batch({"n": [1, 2], "who": ["a", None]})
    >>> writer = JsonLinesWriter(rows.schema)
    >>> writer.add_batch_data(rows)
    >>> statistics = writer.finish()
    >>> writer.split_to(writer.buffered_bytes)
    b'{"n":1,"who":"a"}\\n{"n":2,"who":null}\\n'
    """

    def __init__(self, schema: pa.Schema, compression: JsonCompression = JsonCompression.NONE) -> None:
        self._schema = schema
        self._compression = compression
        self._bytes = UntakenBytes()
        self._numbers = PieceNumbers()
        self._lines: list[bytes] = []
        self._line_bytes = 0
        self._row_count = 0

    @classmethod
    def resume(
        cls, schema: pa.Schema, state: WriterState, compression: JsonCompression = JsonCompression.NONE
    ) -> JsonLinesWriter:
        """The writer as it was at a checkpoint."""
        writer = cls(schema, compression)
        state.check()
        writer._bytes = UntakenBytes(state.start, state.of_kind(PieceKind.BYTES))
        writer._numbers = PieceNumbers(state.next_piece)
        writer._row_count = state.row_count
        return writer

    @property
    def unflushed_bytes(self) -> int:
        """Lines that are not compressed yet."""
        return self._line_bytes

    @property
    def buffered_bytes(self) -> int:
        """Finished bytes that nobody has taken."""
        return len(self._bytes)

    @property
    def file_bytes(self) -> int:
        """How large the file would be now, at most."""
        return self._bytes.end + self._line_bytes

    def add_batch_data(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        rows = _row_dicts(conformed_rows(batch, self._schema))
        if not rows:
            return
        lines = _ENCODER.encode_lines(rows)
        self._lines.append(lines)
        self._line_bytes += len(lines)
        self._row_count += len(rows)
        if self._line_bytes >= BLOCK_BYTES:
            self.settle()

    def split_to(self, size_bytes: int) -> bytes:
        """Take finished bytes from the front."""
        return self._bytes.take(size_bytes)

    def settle(self) -> None:
        """Turn all lines into finished bytes."""
        if self._lines:
            self._bytes.append(_compress(b"".join(self._lines), self._compression))
            self._lines, self._line_bytes = [], 0

    def checkpoint(self) -> WriterState:
        """Everything that another process needs to go on."""
        self.settle()
        pieces = tuple(self._bytes.checkpoint(self._numbers))
        return WriterState(self._bytes.start, self._row_count, 0, self._numbers.next, pieces)

    def finish(self) -> FileStatistics:
        """End the file."""
        self.settle()
        return FileStatistics(self._row_count)


def _row_dicts(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        return list(batch.to_pylist(maps_as_pydicts="strict"))
    except (ArithmeticError, ValueError, KeyError) as cause:
        raise InvalidInputError(
            "rows cannot be written as JSON",
            found=f"{type(cause).__name__}: {cause}"[:200],
            expected="times of the years 1 to 9999, and each key of a map once",
        ) from cause


def _compress(lines: bytes, compression: JsonCompression) -> bytes:
    match compression:
        case JsonCompression.NONE:
            return lines
        case JsonCompression.GZIP:
            # Without the time of day in the header, the same rows make the same bytes.
            return gzip.compress(lines, compresslevel=6, mtime=0)
        case JsonCompression.ZSTD:
            return bytes(pa.compress(lines, codec="zstd", asbytes=True))
