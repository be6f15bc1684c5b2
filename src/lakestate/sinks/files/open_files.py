"""The open files of a sink as state: one small record for each, and the pieces of its writer.

They are rows of an ordinary keyed table, routed by the file's id. An epoch writes the record of a
file that it touched and the pieces that are new; a file that it did not touch costs nothing. After
rescaling the key range says which subtask has a file: exactly one.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pyarrow as pa

from lakestate.codec.untrusted import UNDECODABLE
from lakestate.errors import CorruptionError
from lakestate.sinks.files.destination import ResumePoint
from lakestate.sinks.files.snapshots import Snapshot
from lakestate.sinks.formats.writer_state import Piece, PieceKind, WriterState
from lakestate.tables.keyed.table import KeyedTable
from lakestate.tables.keyed.view import KeyedView

OPEN_FILES = "open_files"
_RECORD = -1
"""The number of the row that holds the record; pieces are numbered from 0."""

_FIRST_SHOWN = -2
"""Rows with this number and below hold the paths of small files that show rows of the file, one each."""

_PREVIEW_PIECES = 1 << 32
"""The pieces of the first small file are numbered from here, those of the second from twice this, …"""

_PUT_BYTES_MAX = 1 << 28


def open_files_table() -> KeyedTable:
    """The table that every file sink keeps."""
    return KeyedTable(
        OPEN_FILES,
        key="file string, piece bigint",
        value="content binary",
        route_by=["file"],
        description="files that a sink keeps open: their records, and what is not in the store yet",
    )


class StoredPiece(msgspec.Struct, frozen=True, array_like=True):
    """A piece without its content."""

    number: int
    kind: PieceKind
    start: int
    size_bytes: int


class OpenFile(msgspec.Struct, frozen=True):
    """The record of an open file."""

    file_id: str
    path: str
    partition: str
    format: str
    """The schema of the file's rows and how they are encoded. Rows with another value need another file."""
    resume_point: ResumePoint = msgspec.field(name="place")
    opened_ms: int
    written_ms: int
    size_bytes: int
    partition_end_us: int | None
    start: int
    row_count: int
    encoded_row_bytes: int
    next_piece: int
    pieces: tuple[StoredPiece, ...]
    snapshot: Snapshot | None = None
    """The complete copy of the file, with `snapshot_open_files`."""
    shown: int = 0
    """How many small files show rows of this one, with `Roll(visible=…)`."""
    shown_rows: int = 0
    """How many of its rows they show."""
    preview: OpenFile | None = None
    """The small file with the rows that readers cannot see yet. It has the same `file_id`."""

    @property
    def has_previews(self) -> bool:
        """Whether each of its rows is in a small file too."""
        return self.shown > 0 or self.preview is not None

    @property
    def parts(self) -> tuple[OpenFile, ...]:
        """The file, and the small one that is open with it."""
        return (self,) if self.preview is None else (self, self.preview)


class OpenFileState(msgspec.Struct, frozen=True):
    """What a file continues from: the state of its writer, and what there is of small files."""

    writer: WriterState
    preview: WriterState | None = None
    shown: tuple[str, ...] = ()
    """The paths of the small files that show rows of it, oldest first."""


class OpenFiles:
    """The open files of one subtask."""

    def __init__(self, view: KeyedView) -> None:
        self._view = view
        self._rows: dict[str, dict[int, pa.BinaryScalar]] = {}
        for batch in view.scan():
            columns = (batch.column(0).to_pylist(), batch.column(1).to_pylist(), batch.column(2))
            for file_id, number, content in zip(*columns, strict=True):
                self._rows.setdefault(file_id, {})[number] = content
        self._changed: list[tuple[str, int, bytes]] = []
        self._removed: list[tuple[str, int]] = []

    def records(self) -> list[OpenFile]:
        """All files, oldest first."""
        found = [_record(file_id, rows) for file_id, rows in self._rows.items()]
        return sorted(found, key=lambda file: (file.opened_ms, file.file_id))

    def state(self, file: OpenFile) -> OpenFileState:
        """The state that the file continues from."""
        rows = self._rows[file.file_id]
        writer = _writer_state(file, rows, 0)
        first = _first_preview_piece(file)
        preview = None if file.preview is None else _writer_state(file.preview, rows, first)
        return OpenFileState(writer, preview, tuple(_shown_path(file, rows, k) for k in range(file.shown)))

    def keep(self, file: OpenFile, state: OpenFileState) -> None:
        """Store a file that stays open."""
        assert file.shown == len(state.shown), "the record counts the small files"
        contents = {piece.number: piece.content for piece in state.writer.pieces}
        if state.preview is not None:
            first = _first_preview_piece(file)
            contents |= {first + piece.number: piece.content for piece in state.preview.pieces}
        contents |= {_FIRST_SHOWN - k: path.encode() for k, path in enumerate(state.shown)}
        stored = self._rows.get(file.file_id, {})
        self._changed.append((file.file_id, _RECORD, msgspec.json.encode(file)))
        # What has a number never changes.
        self._changed += [
            (file.file_id, number, content) for number, content in contents.items() if number not in stored
        ]
        self._removed += [(file.file_id, number) for number in stored if number not in {*contents, _RECORD}]

    def forget(self, file_id: str) -> None:
        """Remove a file that is finished."""
        self._removed += [(file_id, number) for number in self._rows.get(file_id, {})]

    def save(self) -> None:
        """Write all changes to the table."""
        for part in _portions(self._changed):
            self._view.put(
                pa.record_batch(
                    {
                        "file": [file_id for file_id, _, _ in part],
                        "piece": [number for _, number, _ in part],
                        "content": pa.array([content for _, _, content in part], pa.binary()),
                    }
                )
            )
        if self._removed:
            files, numbers = zip(*self._removed, strict=True)
            self._view.delete(pa.record_batch({"file": list(files), "piece": list(numbers)}))
        self._changed, self._removed = [], []


def stored_pieces(pieces: Iterable[Piece]) -> tuple[StoredPiece, ...]:
    """Pieces as a record names them."""
    return tuple(StoredPiece(piece.number, piece.kind, piece.start, len(piece.content)) for piece in pieces)


def _record(file_id: str, rows: dict[int, pa.BinaryScalar]) -> OpenFile:
    try:
        record = msgspec.json.decode(rows[_RECORD].as_py() or b"", type=OpenFile)
        if record.file_id != file_id:
            raise ValueError(f"it is of file {record.file_id}")
    except (KeyError, *UNDECODABLE) as cause:
        raise CorruptionError(
            "the record of an open file cannot be read",
            object_name=f"table {OPEN_FILES}, file {file_id}",
            found=str(cause)[:200],
        ) from cause
    return record


def _first_preview_piece(file: OpenFile) -> int:
    return (file.shown + 1) * _PREVIEW_PIECES


def _writer_state(file: OpenFile, rows: dict[int, pa.BinaryScalar], first: int) -> WriterState:
    pieces = tuple(_piece(file, stored, rows.get(first + stored.number)) for stored in file.pieces)
    return WriterState(file.start, file.row_count, file.encoded_row_bytes, file.next_piece, pieces)


def _shown_path(file: OpenFile, rows: dict[int, pa.BinaryScalar], k: int) -> str:
    content = rows.get(_FIRST_SHOWN - k)
    if content is None:
        raise CorruptionError(
            "the name of a small file that shows rows of an open one is missing",
            object_name=f"table {OPEN_FILES}, file {file.file_id}, small file {k + 1} of {file.shown}",
        )
    return str(content.as_py().decode())


def _piece(file: OpenFile, stored: StoredPiece, content: pa.BinaryScalar | None) -> Piece:
    data = None if content is None else content.as_py()
    if data is None or len(data) != stored.size_bytes:
        raise CorruptionError(
            "a piece of an open file is missing",
            object_name=f"table {OPEN_FILES}, file {file.file_id}, piece {stored.number}",
            found="nothing" if data is None else f"{len(data)} bytes",
            expected=f"{stored.size_bytes} bytes",
        )
    return Piece(stored.number, stored.kind, data, stored.start)


def _portions(rows: list[tuple[str, int, bytes]]) -> Iterable[list[tuple[str, int, bytes]]]:
    """Rows in portions that an Arrow array of bytes can hold."""
    portion: list[tuple[str, int, bytes]] = []
    size = 0
    for row in rows:
        if portion and size + len(row[2]) > _PUT_BYTES_MAX:
            yield portion
            portion, size = [], 0
        portion.append(row)
        size += len(row[2])
    if portion:
        yield portion
