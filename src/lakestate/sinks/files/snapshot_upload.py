"""The copy of an open file in an object store, put in parts of its own.

The parts of an upload cannot be read before it is completed. What earlier epochs put into the file is
therefore read from the copy that the newest epoch left, and what this epoch puts is put twice.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

from lakestate.errors import NotFoundError
from lakestate.sinks.files.pre_commit import CompletedUpload, FilePreCommit, Part, SmallObject
from lakestate.sinks.files.snapshots import Snapshot
from lakestate.sinks.formats.statistics import FileStatistics
from lakestate.storage.store import ByteRange, Data, ObjectStore, UploadedPart, UploadId

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakestate.sinks.files.uploads import UploadDestinations


def can_copy(store: ObjectStore, previous: Snapshot | None, start: int) -> bool:
    """Whether the first bytes of a file, which are parts of an upload by now, can be read from its copy."""
    if not start:
        return True
    if previous is None or previous.file_bytes < start:
        return False
    try:
        return store.head(previous.path).size_bytes == previous.size_bytes
    except NotFoundError:
        return False


class SnapshotUpload:
    """One copy in one epoch. It becomes visible only if the epoch is committed."""

    def __init__(self, uploads: UploadDestinations, path: str, previous: Snapshot | None, start: int) -> None:
        self._uploads = uploads
        self._path = path
        self._previous = previous
        self._start = start
        self._upload: UploadId | None = None
        self._pending: list[Future[UploadedPart]] = []
        self._size = 0

    def add(self, data: Data) -> None:
        """Put what was put into the file."""
        self._begin()
        self._put(len(data), lambda: data)

    def finish(self, trailing: bytes, statistics: FileStatistics) -> FilePreCommit:
        """Put the end of the copy, and wait for all of it; returns how to make it visible."""
        rows = FileStatistics(statistics.row_count)
        if self._upload is None and not self._start and self._uploads.may_inline(len(trailing)):
            return FilePreCommit(self._path, len(trailing), SmallObject(trailing), rows)
        self._begin()
        self._put(len(trailing), lambda: trailing)
        parts = tuple(Part.of(future.result()) for future in self._pending)
        assert self._upload is not None
        return FilePreCommit(self._path, self._size, CompletedUpload(self._upload.token, parts), rows)

    def cancel(self) -> None:
        """Put no more parts: this attempt has failed. What is put waits for clean-up."""
        for future in self._pending:
            future.cancel()

    def discard(self) -> None:
        """Give up the copy, because the file is finished. Nothing refers to it."""
        self.cancel()
        if self._upload is not None:
            self._uploads.store.uploads.abort(self._upload)

    def _begin(self) -> None:
        if self._upload is not None:
            return
        self._upload = self._uploads.store.uploads.start(self._path)
        if self._start:
            assert self._previous is not None, "a file of which parts are put has a copy, or is finished"
            for span in part_spans(self._start, self._uploads.part_bytes):
                self._put(span.length, self._reader(self._previous.path, span))

    def _reader(self, path: str, span: ByteRange) -> Callable[[], Data]:
        store = self._uploads.store
        return lambda: store.get_range(path, span)

    def _put(self, size: int, read: Callable[[], Data]) -> None:
        upload, number = self._upload, len(self._pending) + 1
        assert upload is not None
        put_part = self._uploads.store.uploads.put_part
        self._size += size
        self._pending.append(self._uploads.pool.submit(lambda: put_part(upload, number, read())))


def part_spans(size_bytes: int, part_bytes: int) -> list[ByteRange]:
    """All bytes in parts of at least this length; the last one has what is left over.

    >>> part_spans(25, 10)
    [ByteRange(start=0, length=10), ByteRange(start=10, length=15)]
    """
    count = max(1, size_bytes // part_bytes)
    starts = [number * part_bytes for number in range(count)]
    ends = [*starts[1:], size_bytes]
    return [ByteRange(start, end - start) for start, end in zip(starts, ends, strict=True)]
