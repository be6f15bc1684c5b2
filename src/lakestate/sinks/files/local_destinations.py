"""Files that grow under hidden names in a local directory, for any format."""

from __future__ import annotations

from lakestate.sinks.files.destination import (
    Destination,
    LocalResumePoint,
    ResumePoint,
    UploadResumePoint,
    moved_output_error,
)
from lakestate.sinks.files.local_output import HiddenFile, LocalOutput
from lakestate.sinks.files.names import copy_name, hidden_name
from lakestate.sinks.files.pre_commit import Content, LocalFile
from lakestate.sinks.formats.format import BatchBufferingWriter


class LocalDestinations:
    """The hidden files of one subtask in one epoch. `attempt` makes names of copies unique."""

    def __init__(self, output: LocalOutput, attempt: str) -> None:
        self._output = output
        self._attempt = attempt

    def begin(self, path: str) -> Destination:
        """A new file."""
        self._output.require_place(path)
        return LocalDestination(self._output, path, self._output.create(hidden_name(path)))

    def resume(self, path: str, resume_point: ResumePoint) -> Destination:
        """A file that continues."""
        if isinstance(resume_point, UploadResumePoint):
            raise moved_output_error(path, resume_point, str(self._output.root))
        self._output.require_place(path)
        copy = copy_name(path, self._attempt)
        file = self._output.reopen(resume_point.temporary, resume_point.position, resume_point.crc32, copy)
        in_place = file.path.name == resume_point.temporary
        return LocalDestination(self._output, path, file, copy if in_place else None)

    def close(self) -> None:
        """There is no background work."""


class LocalDestination:
    """One hidden file in one epoch. `copy` is set if a checkpoint names the file, so that others know it."""

    def __init__(self, output: LocalOutput, path: str, file: HiddenFile, copy: str | None = None) -> None:
        self._output = output
        self._path = path
        self._file = file
        self._copy = copy
        self._found_bytes = file.position

    @property
    def size_bytes(self) -> int:
        """The bytes accepted so far, in all epochs."""
        return self._file.position

    def accept(self, writer: BatchBufferingWriter) -> None:
        """Append everything that is finished."""
        if writer.buffered_bytes:
            self._file.append(writer.split_to(writer.buffered_bytes))

    def accept_all(self, writer: BatchBufferingWriter) -> None:
        """Append the rest and close the file: an epoch may finish more files than can be open at once."""
        self.accept(writer)
        if self._copy is not None and self._file.position == self._found_bytes:
            self._move_to(self._copy)
        self._close()

    def checkpoint(self) -> ResumePoint:
        """Make it durable and close it."""
        self._close()
        return LocalResumePoint(self._file.path.name, self._file.position, self._file.crc32)

    def complete(self) -> Content:
        """The file that was made durable when it was finished, if it can still become visible."""
        self._output.require_place(self._path)
        return LocalFile(self._file.path.name, self._file.crc32)

    def must_roll(self) -> bool:
        """A local file can always grow."""
        return False

    def abandon(self) -> None:
        """Close the file."""
        self._file.close()

    def _move_to(self, copy: str) -> None:
        """Finish the file under a name of its own, because nothing was appended to it.

        It is as long as the checkpoint says, so a late attempt would consider it open, and append to it
        after it was finished or even visible. Another name for the same file would not help.
        """
        found = self._file
        self._file = self._output.copy_to(found, copy)
        found.close()

    def _close(self) -> None:
        self._file.sync()
        self._file.close()
