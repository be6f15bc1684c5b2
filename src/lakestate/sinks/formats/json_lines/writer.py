"""`JsonLinesWriter`: one file of JSON lines that stays open for as many epochs as it takes.

A compressed file is a sequence of complete gzip members or Zstandard frames, which every reader takes
as one stream. So another process can continue the file without the memory of the compressor.
"""

from __future__ import annotations

import gzip
from enum import Enum
from typing import Any

import msgspec
import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.sinks.formats.appending_writer import AppendingWriter
from lakestate.sinks.formats.writer_state import WriterState


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


class JsonLinesWriter(AppendingWriter):
    """A resumable writer of one file. Numbers that are not finite are written as null.

    >>> rows = pa.record_batch({"n": [1, 2], "who": ["a", None]})
    >>> writer = JsonLinesWriter(rows.schema)
    >>> writer.add_batch_data(rows)
    >>> statistics = writer.finish()
    >>> writer.split_to(writer.buffered_bytes)
    b'{"n":1,"who":"a"}\\n{"n":2,"who":null}\\n'
    """

    def __init__(
        self,
        schema: pa.Schema,
        compression: JsonCompression = JsonCompression.NONE,
        state: WriterState | None = None,
    ) -> None:
        super().__init__(schema, state)
        self._compression = compression

    def encode_rows(self, batch: pa.RecordBatch) -> bytes:
        """One line per row."""
        return _ENCODER.encode_lines(_row_dicts(batch))

    def encode_block(self, block: bytes) -> bytes:
        """The lines, compressed."""
        match self._compression:
            case JsonCompression.NONE:
                return block
            case JsonCompression.GZIP:
                # Without the time of day in the header, the same rows make the same bytes.
                return gzip.compress(block, compresslevel=6, mtime=0)
            case JsonCompression.ZSTD:
                return bytes(pa.compress(block, codec="zstd", asbytes=True))


def _row_dicts(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        return list(batch.to_pylist(maps_as_pydicts="strict"))
    except (ArithmeticError, ValueError, KeyError) as cause:
        raise InvalidInputError(
            "rows cannot be written as JSON",
            found=f"{type(cause).__name__}: {cause}"[:200],
            expected="times of the years 1 to 9999, and each key of a map once",
        ) from cause
