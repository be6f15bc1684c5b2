"""Reading only the row groups and columns of a file that are wanted, each verified on its own.

After rescaling, a subtask owns a part of a file's keys. The reference has the positions and checksums of
the row groups, so that neither the rest of the file nor a request for the footer's position is needed.
For single columns it has the checksum of the footer, and the footer has those of the column chunks.
A large file that is wanted whole is read in pieces of some row groups, several at the same time.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from lakestate.errors import RESTORE_OR_GO_BACK, CorruptionError
from lakestate.job.objects import JobObjects
from lakestate.protocol.key_ranges import KEY_MAX, KeyRange
from lakestate.protocol.values import Block, FileRef
from lakestate.storage.parallel import map_in_parallel
from lakestate.storage.store import ByteRange
from lakestate.tables.runs.parquet import (
    check_row_count,
    column_checksums,
    column_chunks,
    leaves_of,
    read_row_groups,
    undecodable_error,
)

PIECE_BYTES = 8 << 20
"""Of a large file. It is little enough for the memory of one to be used again for the next."""


def wanted_blocks(file: FileRef) -> tuple[int, ...]:
    """The row groups that hold valid keys. Empty if the whole file is wanted."""
    wanted = tuple(index for index, block in enumerate(file.blocks) if block.keys.overlaps(file.valid_keys))
    return () if len(wanted) == len(file.blocks) else wanted


def key_pieces(files: Sequence[FileRef]) -> Iterator[KeyRange]:
    """Key ranges that together are all keys, each of about one row group of the largest file.

    >>> [(keys.first, keys.last == KEY_MAX) for keys in key_pieces([])]
    [(0, True)]
    """
    start = 0
    for block in max((file.blocks for file in files), key=len, default=())[:-1]:
        if start <= block.keys.last < KEY_MAX:
            yield KeyRange(start, block.keys.last)
            start = block.keys.last + 1
    yield KeyRange(start, KEY_MAX)


def narrow_range(keys: KeyRange, wanted: np.ndarray) -> KeyRange | None:
    """The smallest part of a range that holds all wanted routing keys in it, which ascend; None if none is.

    >>> narrow_range(KeyRange(10, 20), np.array([5, 12, 14, 40], dtype=np.uint64))
    KeyRange(first=12, last=14)
    """
    start = int(np.searchsorted(wanted, np.uint64(keys.first), side="left"))
    stop = int(np.searchsorted(wanted, np.uint64(keys.last), side="right"))
    return KeyRange(int(wanted[start]), int(wanted[stop - 1])) if start < stop else None


def read_blocks(
    file: FileRef, wanted: Sequence[int], objects: JobObjects
) -> tuple[pa.Table, Mapping[bytes, bytes] | None]:
    """The rows of some row groups, and the file's key-value metadata."""
    shown = objects.url_of(file.path)
    spans = [ByteRange(file.blocks[index].start, file.blocks[index].length) for index in wanted]
    spans.append(_footer_span(file))
    pieces = objects.read_ranges(file.object_ref, spans)
    checksums = [file.blocks[index].checksum for index in wanted] + [file.footer_checksum]
    for span, piece, checksum in zip(spans, pieces, checksums, strict=True):
        _verify(shown, span, piece, checksum)
    try:
        parquet = _open_sparse(file, spans, pieces)
        row_count = sum(file.blocks[index].row_count for index in wanted)
        check_row_count(parquet.metadata, wanted, row_count, shown)
        return read_row_groups(parquet, wanted), parquet.schema_arrow.metadata
    except (pa.ArrowException, OSError, ValueError) as cause:
        raise undecodable_error(shown, cause) from cause


_Checked = tuple[ByteRange, int]
"""A part of a file, and its checksum."""
_MAGIC: _Checked = ByteRange(0, 4), xxhash.xxh3_64_intdigest(b"PAR1")


@dataclass(frozen=True, slots=True)
class FilePieces:
    """The verified bytes of a file, the last piece with its footer."""

    size: int
    spans: Sequence[ByteRange]
    pieces: Sequence[bytes]

    def reader(self) -> pa.PythonFile:
        """A file for one thread. Nothing is copied."""
        return pa.PythonFile(SparseFile(self.size, self.spans, self.pieces), mode="r")


FileBytes: TypeAlias = pa.Buffer | FilePieces
"""The verified bytes of a whole file."""


def read_whole(file: FileRef, objects: JobObjects) -> FileBytes:
    """All row groups of a file. Those of a large one are fetched and verified in pieces, at the same time."""
    if len(file.blocks) < 2 or file.size_bytes < 2 * PIECE_BYTES:
        return pa.py_buffer(objects.read_verified(file.object_ref))
    shown = objects.url_of(file.path)

    def read(parts: Sequence[_Checked]) -> bytes:
        whole = _union(parts)
        (piece,) = objects.read_ranges(file.object_ref, [whole])
        view = memoryview(piece)
        for span, checksum in parts:
            first = span.start - whole.start
            _verify(shown, span, view[first : first + span.length], checksum)
        return piece

    groups = [(ByteRange(block.start, block.length), block.checksum) for block in file.blocks]
    pieces = list(_neighbours([_MAGIC, *groups, (_footer_span(file), file.footer_checksum)]))
    return FilePieces(file.size_bytes, [_union(parts) for parts in pieces], map_in_parallel(read, pieces))


def _neighbours(parts: Sequence[_Checked]) -> Iterator[Sequence[_Checked]]:
    """The parts in order, together where they lie side by side and are not too long for a piece."""
    first = 0
    for number, ((one, _), (other, _)) in enumerate(pairwise(parts), start=1):
        is_beside = one.start + one.length == other.start
        if not is_beside or _union(parts[first : number + 1]).length > PIECE_BYTES:
            yield parts[first:number]
            first = number
    yield parts[first:]


def _union(parts: Sequence[_Checked]) -> ByteRange:
    (first, _), (last, _) = parts[0], parts[-1]
    return ByteRange(first.start, last.start + last.length - first.start)


def read_columns(
    file: FileRef, groups: Sequence[int], names: Collection[str], objects: JobObjects
) -> tuple[pa.Table, Mapping[bytes, bytes] | None] | None:
    """Some columns of some row groups, and the file's key-value metadata.

    None if the file has no checksums of its columns. Takes two requests: the footer comes first.
    """
    shown, footer_span = objects.url_of(file.path), _footer_span(file)
    (footer,) = objects.read_ranges(file.object_ref, [footer_span])
    _verify(shown, footer_span, footer, file.footer_checksum)
    try:
        parquet = _open_sparse(file, [footer_span], [footer])
        checksums = column_checksums(parquet.metadata)
        if checksums is None:
            return None
        leaves = leaves_of(parquet.schema_arrow, names)
        wanted = [
            (ByteRange(chunk.start, chunk.length), checksums[group][leaf])
            for group in groups
            for leaf, chunk in enumerate(column_chunks(parquet.metadata, group))
            if leaf in leaves
        ]
        if any(not _is_inside(span, file.blocks) for span, _ in wanted):
            raise ValueError("a column chunk lies outside the row groups")
        check_row_count(
            parquet.metadata, groups, sum(file.blocks[index].row_count for index in groups), shown
        )
    except (pa.ArrowException, OSError, ValueError) as cause:
        raise undecodable_error(shown, cause) from cause
    spans = [span for span, _ in wanted]
    pieces = objects.read_ranges(file.object_ref, spans)
    for (span, checksum), piece in zip(wanted, pieces, strict=True):
        _verify(shown, span, piece, checksum)
    try:
        parquet = _open_sparse(file, [*spans, footer_span], [*pieces, footer])
        return read_row_groups(parquet, groups, leaves=leaves), parquet.schema_arrow.metadata
    except (pa.ArrowException, OSError, ValueError) as cause:
        raise undecodable_error(shown, cause) from cause


def _open_sparse(file: FileRef, spans: Sequence[ByteRange], pieces: Sequence[bytes]) -> pq.ParquetFile:
    source = pa.PythonFile(SparseFile(file.size_bytes, spans, pieces), mode="r")
    # Without `pre_buffer`, which also reads what lies between two columns.
    return pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=False)


def _footer_span(file: FileRef) -> ByteRange:
    last = file.blocks[-1]
    start = last.start + last.length
    return ByteRange(start, file.size_bytes - start)


def _is_inside(span: ByteRange, blocks: Sequence[Block]) -> bool:
    return any(
        block.start <= span.start and 0 < span.length <= block.start + block.length - span.start
        for block in blocks
    )


def _verify(shown: str, span: ByteRange, piece: bytes | memoryview, checksum: int) -> None:
    found = xxhash.xxh3_64_intdigest(piece)
    if len(piece) != span.length or found != checksum:
        raise CorruptionError(
            "a part of a data file does not match its checksum",
            object_name=shown,
            found=f"{len(piece)} bytes at {span.start} with xxh3 {found:016x}",
            expected=f"{span.length} bytes with xxh3 {checksum:016x}",
            action=RESTORE_OR_GO_BACK,
        )


class SparseFile(io.RawIOBase):
    """A file of which only some ranges are present, the footer last. Reading elsewhere is an error."""

    def __init__(self, size_bytes: int, spans: Sequence[ByteRange], pieces: Sequence[bytes]) -> None:
        self._size = size_bytes
        self._pieces = list(zip(spans, pieces, strict=True))
        self._footer_start = spans[-1].start
        self._position = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """The position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes | memoryview:
        """The bytes at the position, which must be among the ranges. Not copied if one range has them."""
        start, stop = self._position, self._size if size < 0 else min(self._size, self._position + size)
        self._position = stop
        # A Parquet reader reads the last 64 KiB in the hope that they include the footer, and uses only
        # the footer. The bytes before it were not fetched.
        missing = max(0, self._footer_start - start) if stop == self._size else 0
        found = self._bytes(start + missing, stop)
        return b"".join((bytes(missing), found)) if missing else found

    def _bytes(self, start: int, stop: int) -> bytes | memoryview:
        collected: list[memoryview] = []
        for span, piece in self._pieces:
            if start < stop and span.start <= start < span.start + span.length:
                view = memoryview(piece)
                collected.append(view[start - span.start : min(stop, span.start + span.length) - span.start])
                start += len(collected[-1])
        if start < stop:
            raise OSError(f"bytes {start} to {stop} were not fetched")
        return collected[0] if len(collected) == 1 else b"".join(collected)
