"""`GrowingFile`: a hidden file in the hands of one attempt, from where it found it to where it leaves it."""

from __future__ import annotations

from dataclasses import dataclass

from lakestate.sinks.files.local.output import HiddenFile, LocalOutput
from lakestate.sinks.files.pre_commit import FilePreCommit, LocalFile
from lakestate.sinks.formats.statistics import FileStatistics


@dataclass(frozen=True, slots=True)
class SnapshotPlace:
    """Where a complete copy of a file goes: where it becomes visible, and its hidden name until then."""

    path: str
    temporary: str


class GrowingFile:
    """One hidden file in one epoch. `path` is where it becomes visible.

    `copy` is the name of a copy, given if a checkpoint names the file, so that other attempts know it.
    """

    def __init__(
        self,
        output: LocalOutput,
        path: str,
        file: HiddenFile,
        copy: str | None = None,
        snapshot: SnapshotPlace | None = None,
    ) -> None:
        self.path = path
        self._snapshot = snapshot
        self._output = output
        self._file = file
        self._copy = copy
        self._found_bytes = file.position

    @property
    def temporary(self) -> str:
        """The hidden name."""
        return self._file.path.name

    @property
    def position(self) -> int:
        """How many of its bytes count."""
        return self._file.position

    @property
    def crc32(self) -> int | None:
        """The checksum of those."""
        return self._file.crc32

    def require_place(self) -> None:
        """Refuse a file that cannot become visible where it should."""
        self._output.require_place(self.path)

    def append(self, data: bytes) -> None:
        """Write all of the bytes at the end."""
        self._file.append(data)

    def sync(self) -> None:
        """Make everything durable."""
        self._file.sync()

    def take_snapshot(self, trailing: bytes, row_count: int) -> FilePreCommit:
        """A hidden copy of the file with other bytes behind it; returns how to make it visible."""
        assert self._snapshot is not None, "a sink asks for copies of its files when it opens them"
        copy = self._output.copy_to(self._file, self._snapshot.temporary)
        try:
            copy.append(trailing)
            copy.sync()
        finally:
            copy.close()
        content = LocalFile(self._snapshot.temporary, copy.crc32)
        return FilePreCommit(self._snapshot.path, copy.position, content, FileStatistics(row_count))

    def finish(self) -> None:
        """Make the whole file durable, under a name that no late attempt takes for an open file."""
        if self._copy is not None and self._file.position == self._found_bytes:
            self._move_to(self._copy)
        self._file.sync()
        self._file.close()

    def close(self) -> None:
        """Release the lock."""
        self._file.close()

    def take_back(self) -> None:
        """Release the lock, and leave the file as it was found: this attempt has failed.

        So the next attempt can append to it, and needs no copy. A file that this attempt made is removed.
        Does nothing if the file is closed: a checkpoint that names it may have been reported.
        """
        if self._file.is_closed:
            return
        if self._copy is not None:
            self._file.truncate(self._found_bytes)
            self._file.close()
        else:
            self._file.close()
            self._output.remove(self.temporary)

    def _move_to(self, copy: str) -> None:
        """Finish the file under a name of its own, because nothing was appended to it.

        It is as long as the checkpoint says, so a late attempt would consider it open, and append to it
        after it was finished or even visible. Another name for the same file would not help.
        """
        found = self._file
        self._file = self._output.copy_to(found, copy)
        found.close()
