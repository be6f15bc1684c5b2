"""What a format writer needs to continue in another process: a few numbers and immutable pieces.

A piece keeps its number, so storing a state means writing the pieces that are new since the last
checkpoint and removing those that are gone. Nothing is stored twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum
from itertools import pairwise
from typing import TypeAlias

import msgspec
import pyarrow as pa

from lakestate.errors import CorruptionError, InvalidInputError

FILE_BYTES_MAX = 5 << 40
"""The largest object of S3, and far below what a position in a file can be."""

Chunk: TypeAlias = bytes | memoryview | pa.Buffer


class PieceKind(Enum):
    """What a piece holds."""

    BYTES = "bytes"
    """Finished bytes of the file that are not uploaded."""
    FOOTER = "footer"
    """The metadata of a finished row group."""
    ROWS = "rows"
    """Rows that wait for their row group, as an Arrow IPC stream."""


class Piece(msgspec.Struct, frozen=True):
    """Immutable content. `start` is its offset in the file, for finished bytes."""

    number: int
    kind: PieceKind
    content: bytes
    start: int = 0


class WriterState(msgspec.Struct, frozen=True):
    """A writer between two processes. `start` is the offset of the first byte not yet taken."""

    start: int
    row_count: int
    encoded_row_bytes: int
    """The memory of the rows that are finished bytes now. With `position` it gives the ratio."""
    next_piece: int
    pieces: tuple[Piece, ...] = ()

    @property
    def position(self) -> int:
        """The offset behind the last finished byte."""
        ends = (piece.start + len(piece.content) for piece in self.of_kind(PieceKind.BYTES))
        return max(ends, default=self.start)

    def of_kind(self, kind: PieceKind) -> list[Piece]:
        """The pieces of one kind, oldest first."""
        return [piece for piece in self.pieces if piece.kind is kind]

    def check(self) -> None:
        """Refuse a state that no writer leaves. It comes from storage."""
        untaken = self.of_kind(PieceKind.BYTES)
        numbers = (self.start, self.row_count, self.encoded_row_bytes)
        if (
            not all(0 <= number <= FILE_BYTES_MAX for number in numbers)
            or any(piece.number >= self.next_piece for piece in self.pieces)
            or any(_end(one) != other.start for one, other in pairwise(untaken))
            or (untaken and not untaken[0].start <= self.start <= _end(untaken[-1]))
        ):
            raise CorruptionError(
                "the state of an open file is not valid",
                found=f"offset {self.start}, {self.row_count} rows, bytes "
                + ", ".join(f"{piece.start} to {_end(piece)}" for piece in untaken[:5]),
                expected="bytes without a gap, from the offset on",
            )


def _end(piece: Piece) -> int:
    return piece.start + len(piece.content)


class PieceNumbers:
    """Numbers that no piece of this file has had."""

    def __init__(self, first: int = 0) -> None:
        self.next = first

    def take(self) -> int:
        """The next number."""
        self.next += 1
        return self.next - 1


class UntakenBytes:
    """The bytes that a writer has finished and that have not been taken yet.

    Shared by the writer, which appends, and the uploader, which takes from the front. Chunks are
    kept as they came; they are joined once, when a part is taken.

    >>> untaken = UntakenBytes()
    >>> untaken.append(b"abc"); untaken.append(b"defg")
    >>> untaken.take(4), len(untaken), untaken.start, untaken.end
    (b'abcd', 3, 4, 7)
    """

    def __init__(self, start: int = 0, pieces: Iterable[Piece] = ()) -> None:
        self.start = start
        self._chunks: deque[memoryview] = deque()
        self._size = 0
        self._pieces = list(pieces)
        for piece in self._pieces:
            self.append(memoryview(piece.content)[max(0, start - piece.start) :])

    def __len__(self) -> int:
        return self._size

    @property
    def end(self) -> int:
        """The offset behind the last byte."""
        return self.start + self._size

    def append(self, chunk: Chunk) -> None:
        """Put bytes at the end, without a copy."""
        view = memoryview(chunk).cast("B")
        if len(view):
            self._chunks.append(view)
            self._size += len(view)

    def take(self, size_bytes: int) -> bytes:
        """Remove the first bytes and return them in one piece."""
        if not 0 <= size_bytes <= self._size:
            raise InvalidInputError(
                "more bytes are taken from a writer than it has finished",
                found=f"{size_bytes} bytes",
                expected=f"0 to {self._size} bytes",
            )
        taken, missing = [], size_bytes
        while missing:
            view = self._chunks.popleft()
            if len(view) > missing:
                self._chunks.appendleft(view[missing:])
                view = view[:missing]
            taken.append(view)
            missing -= len(view)
        self._size -= size_bytes
        self.start += size_bytes
        return _join(taken)

    def copy_from(self, offset: int) -> bytes:
        """The bytes from an offset of the file on. They stay."""
        skip, found = max(0, offset - self.start), []
        for view in self._chunks:
            found.append(view[min(skip, len(view)) :])
            skip = max(0, skip - len(view))
        return b"".join(found)

    def checkpoint(self, numbers: PieceNumbers) -> list[Piece]:
        """Pieces that hold all of the bytes: earlier ones that are still needed, and one new one."""
        kept = [piece for piece in self._pieces if piece.start + len(piece.content) > self.start]
        stored_end = max([piece.start + len(piece.content) for piece in kept], default=self.start)
        if stored_end < self.end:
            content = self.copy_from(stored_end)
            kept.append(Piece(numbers.take(), PieceKind.BYTES, content, stored_end))
        self._pieces = kept
        return kept


def _join(views: list[memoryview]) -> bytes:
    """The bytes of all views; without a copy if they are one whole object already."""
    if len(views) == 1 and isinstance(whole := views[0].obj, bytes) and len(whole) == len(views[0]):
        return whole
    return b"".join(views)
