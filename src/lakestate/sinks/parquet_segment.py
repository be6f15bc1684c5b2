"""One row group of a Parquet file that is written piecemeal, in any process, at any offset.

pyarrow writes whole files only. Here its writer believes that it has written everything before
the offset already, so the row group's metadata holds offsets in the whole file. What the writer
puts at the end, the footer, is kept apart: footers of all row groups merged make the file's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakestate.errors import CorruptionError, InvalidInputError

MAGIC = b"PAR1"
COMPRESSIONS = ("none", "snappy", "gzip", "zstd", "lz4", "lz4_raw")
_FOOTER_END_BYTES = 8
_ZEROS = bytes(1 << 20)


@dataclass(frozen=True, slots=True)
class ParquetSettings:
    """How rows are encoded.

    >>> ParquetSettings("brotli")
    Traceback (most recent call last):
    lakestate.errors.InvalidInputError: unknown compression; found 'brotli'; expected none, snappy, ...
    """

    compression: str = "zstd"
    compression_level: int | None = None
    decimals_as_integers: bool = False
    """Store decimals of up to 18 digits as integers, as table formats want them."""

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSIONS:
            raise InvalidInputError(
                "unknown compression", found=repr(self.compression), expected=", ".join(COMPRESSIONS)
            )


@dataclass(frozen=True, slots=True)
class Segment:
    """The bytes of one row group, page indexes included, and the footer that describes it."""

    body: tuple[pa.Buffer | bytes, ...]
    size_bytes: int
    footer: bytes


def encoded_segment(rows: pa.Table, offset: int, settings: ParquetSettings) -> Segment:
    """The rows as one row group that begins at an offset of the file.

    >>> rows = pa.table({"n": [1, 2, 3]})
    >>> segment = encoded_segment(rows, len(MAGIC), ParquetSettings("none"))
    >>> file = b"".join([MAGIC, *segment.body, trailing_footer([segment.footer])])
    >>> pq.read_table(pa.BufferReader(file)).equals(rows)
    True
    """
    sink = _Tape()
    file = pa.PythonFile(sink, mode="w")
    writer = pq.ParquetWriter(
        file,
        rows.schema,
        compression=settings.compression,
        compression_level=settings.compression_level,
        write_page_index=True,
        store_decimal_as_integer=settings.decimals_as_integers,
    )
    assert sink.position == len(MAGIC), "the writer begins with the magic and nothing else"
    _advance(file, offset - len(MAGIC))
    sink.recording = True
    writer.write_table(rows, row_group_size=max(1, len(rows)))
    writer.close()
    return _cut(sink)


def trailing_footer(footers: Sequence[bytes]) -> bytes:
    """The end of a file whose row groups these footers describe."""
    return _written(merged_metadata(footers))[len(MAGIC) :]


def merged_metadata(footers: Sequence[bytes]) -> pq.FileMetaData:
    """The metadata of a file of all row groups, in order."""
    first, *others = (pq.read_metadata(pa.BufferReader(MAGIC + footer)) for footer in footers)
    for other in others:
        first.append_row_groups(other)
    return first


class _Tape:
    """What a `PythonFile` writes to: it counts everything and keeps what comes while recording."""

    def __init__(self) -> None:
        self.chunks: list[Any] = []
        self.position = 0
        self.recording = False
        self.closed = False

    def write(self, data: bytes | pa.Buffer) -> int:
        if self.recording:
            self.chunks.append(data)
        self.position += len(data)
        return len(data)

    def tell(self) -> int:
        return self.position

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        self.closed = True


def _advance(file: pa.PythonFile, count: int) -> None:
    """Make the writer's position that of the whole file, by writing what is thrown away."""
    view = memoryview(_ZEROS)
    while count > 0:
        file.write(view[:count])
        count -= min(count, len(view))


def _cut(sink: _Tape) -> Segment:
    """Separate the row group from the footer behind it."""
    end = b"".join(memoryview(chunk) for chunk in _last_chunks(sink.chunks, _FOOTER_END_BYTES))
    footer_bytes = int.from_bytes(end[-8:-4], "little") + _FOOTER_END_BYTES
    if end[-4:] != MAGIC:
        raise CorruptionError("the Parquet writer did not end with its magic", found=repr(end[-8:]))
    total = sum(map(len, sink.chunks))
    body, footer, seen = [], [], 0
    for chunk in sink.chunks:
        inside = min(len(chunk), max(0, total - footer_bytes - seen))
        view = memoryview(chunk)
        body.append(chunk if inside == len(chunk) else bytes(view[:inside]))
        footer.append(view[inside:])
        seen += len(chunk)
    return Segment(tuple(filter(len, body)), total - footer_bytes, b"".join(footer))


def _last_chunks(chunks: Sequence[Any], count: int) -> Sequence[Any]:
    start = len(chunks)
    while start > 0 and count > 0:
        start -= 1
        count -= len(chunks[start])
    return chunks[start:]


def _written(metadata: pq.FileMetaData) -> bytes:
    stream = pa.BufferOutputStream()
    metadata.write_metadata_file(stream)
    return bytes(stream.getvalue().to_pybytes())
