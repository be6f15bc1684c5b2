"""One row group of a Parquet file that is written in pieces, in any process, at any offset.

pyarrow writes whole files only. Here the position of the file is moved behind the writer's back, so
that the row group's metadata holds offsets in the whole file. The footer at the end is kept apart: the
merged footers of all row groups are the footer of the file.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from lakestate.errors import CorruptionError, InvalidInputError
from lakestate.sinks.formats.parquet.dictionary_columns import dictionary_columns

MAGIC = b"PAR1"
COMPRESSIONS = ("none", "snappy", "gzip", "zstd", "lz4_raw")
_FOOTER_END_BYTES = 8


@dataclass(frozen=True, slots=True)
class ParquetEncoding:
    """How rows are encoded.

    >>> ParquetEncoding("brotli")
    Traceback (most recent call last):
    lakestate.errors.InvalidInputError: unknown compression; found 'brotli'; expected none, snappy, ...
    """

    compression: str = "zstd"
    compression_level: int | None = None
    decimals_as_integers: bool = False
    """Store decimals of up to 18 digits as integers, as table formats want them."""

    def __post_init__(self) -> None:
        if self.compression == "lz4":
            # Parquet's LZ4 is framed as Hadoop does it. pyarrow writes LZ4_RAW under both names.
            raise InvalidInputError(
                "Parquet's lz4 is a deprecated codec that many readers do not know, and it is not written",
                found="compression 'lz4'",
                expected=", ".join(COMPRESSIONS),
                action="use lz4_raw: the same algorithm, without the framing that was deprecated",
            )
        if self.compression not in COMPRESSIONS:
            raise InvalidInputError(
                "unknown compression", found=repr(self.compression), expected=", ".join(COMPRESSIONS)
            )
        if self.compression_level is not None:
            _check_level(self.compression, self.compression_level)


@dataclass(frozen=True, slots=True)
class Segment:
    """The bytes of one row group, page indexes included, and the footer that describes it."""

    body: bytes
    footer: bytes


def encode_segment(rows: pa.Table, offset: int, settings: ParquetEncoding) -> Segment:
    """The rows as one row group that begins at an offset of the file.

    >>> rows = pa.table({"n": [1, 2, 3]})
    >>> segment = encode_segment(rows, len(MAGIC), ParquetEncoding("none"))
    >>> file = b"".join([MAGIC, segment.body, trailing_footer([segment.footer])])
    >>> pq.read_table(pa.BufferReader(file)).equals(rows)
    True
    """
    with _scratch_file() as (path, descriptor):
        with pa.OSFile(path, "wb") as file:
            writer = _writer(file, rows, settings)
            if file.tell() != len(MAGIC):
                raise CorruptionError(
                    "the Parquet writer did not begin with its magic alone", found=f"{file.tell()} bytes"
                )
            # The writer reads its position from the file; what is skipped takes no space.
            os.lseek(file.fileno(), offset, os.SEEK_SET)
            writer.write_table(rows, row_group_size=max(1, len(rows)))
            writer.close()
        return _split_footer(descriptor, offset)


def trailing_footer(footers: Sequence[bytes]) -> bytes:
    """The end of a file whose row groups these footers describe."""
    return _serialise_metadata(merge_metadata(footers))[len(MAGIC) :]


def merge_metadata(footers: Sequence[bytes]) -> pq.FileMetaData:
    """The metadata of a file of all row groups, in order."""
    first, *others = (pq.read_metadata(pa.BufferReader(MAGIC + footer)) for footer in footers)
    for other in others:
        first.append_row_groups(other)
    return first


def _check_level(compression: str, level: int) -> None:
    """Refuse what the codec refuses. It is tried: some codecs accept levels outside their own range."""
    try:
        pq.write_table(
            pa.table({"n": [0]}), pa.BufferOutputStream(), compression=compression, compression_level=level
        )
    except (TypeError, ValueError, OverflowError, OSError) as cause:
        raise InvalidInputError(
            "not a compression level of this codec",
            object_name=compression,
            found=f"level {level!r}: {cause}",
            action="give another level, or none",
        ) from cause


def _writer(file: pa.NativeFile, rows: pa.Table, settings: ParquetEncoding) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        file,
        rows.schema,
        use_dictionary=dictionary_columns(rows),
        compression=settings.compression,
        compression_level=settings.compression_level,
        write_page_index=True,
        store_decimal_as_integer=settings.decimals_as_integers,
    )


@contextmanager
def _scratch_file() -> Iterator[tuple[str, int]]:
    """A file that only this process sees, in memory where the system can: its path and descriptor."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("lakestate-row-group")
        try:
            yield f"/proc/self/fd/{descriptor}", descriptor
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:
            yield file.name, file.fileno()


def _split_footer(descriptor: int, offset: int) -> Segment:
    """Separate the row group from the footer behind it."""
    size = os.fstat(descriptor).st_size
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as written:
        if written[-len(MAGIC) :] != MAGIC or size < offset + _FOOTER_END_BYTES:
            raise CorruptionError("the Parquet writer did not end with its magic", found=f"{size} bytes")
        footer_start = size - _FOOTER_END_BYTES - int.from_bytes(written[-8:-4], "little")
        return Segment(written[offset:footer_start], written[footer_start:])


def _serialise_metadata(metadata: pq.FileMetaData) -> bytes:
    stream = pa.BufferOutputStream()
    metadata.write_metadata_file(stream)
    return bytes(stream.getvalue().to_pybytes())
