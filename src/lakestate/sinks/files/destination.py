"""Where the bytes of an open file go during an epoch, and what a checkpoint stores about it.

A destination makes bytes durable; it makes nothing visible. There are two: uploads to an object
store, and hidden files in a local directory.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from lakestate.errors import IncompatibleStateError
from lakestate.sinks.files.lanes import LaneNames
from lakestate.sinks.files.pre_commit import Content, OpenReference, Part
from lakestate.sinks.formats.format import BatchBufferingWriter


class UploadResumePoint(msgspec.Struct, frozen=True, tag="upload"):
    """An upload that continues: its parts, and the last lane that was used."""

    token: str | None = None
    lane: int = 0
    parts: tuple[Part, ...] = ()
    lane_names: LaneNames = LaneNames.FILE
    """As the version that began the upload names them: it may still have attempts that run."""


class LocalResumePoint(msgspec.Struct, frozen=True, tag="local"):
    """A hidden file that continues at a position."""

    temporary: str
    position: int
    crc32: int | None = None
    """Of the bytes up to the position."""


ResumePoint = UploadResumePoint | LocalResumePoint


def open_reference(path: str, resume_point: ResumePoint) -> OpenReference:
    """What clean-up must keep for this file.

    A file of which no part is stored yet has no token; the next epoch may begin its upload.
    """
    return OpenReference(
        path,
        resume_point.temporary if isinstance(resume_point, LocalResumePoint) else resume_point.token or "",
    )


def moved_output_error(path: str, resume_point: ResumePoint, output: str) -> IncompatibleStateError:
    """The error for an open file of another output than the sink has now."""
    local = isinstance(resume_point, LocalResumePoint)
    return IncompatibleStateError(
        "a file was begun in another output than the sink has now",
        object_name=path,
        found="a local file" if local else "an upload to an object store",
        expected=output,
        action="move the output back and stop the job with finish_files=True before you move it",
    )


class Destination(Protocol):
    """Where the bytes of one file go in one epoch."""

    def accept(self, writer: BatchBufferingWriter) -> None:
        """Take what can be taken of the writer's finished bytes. This may continue in the background."""
        ...

    def checkpoint(self) -> ResumePoint:
        """Wait until everything accepted is durable; returns how to continue."""
        ...

    def accept_all(self, writer: BatchBufferingWriter) -> None:
        """Take all of a finished file."""
        ...

    def complete(self) -> Content:
        """Wait until the whole file is durable; returns how to make it visible."""
        ...

    @property
    def size_bytes(self) -> int:
        """The bytes accepted so far, in all epochs."""
        ...

    def must_roll(self) -> bool:
        """True if the file cannot take many more parts."""
        ...

    def abandon(self) -> None:
        """Release local resources. Nothing stored is touched."""
        ...


class Destinations(Protocol):
    """Makes the destinations of one subtask's files in one epoch."""

    def begin(self, path: str) -> Destination:
        """A new file."""
        ...

    def resume(self, path: str, resume_point: ResumePoint) -> Destination:
        """A file as it was at a checkpoint."""
        ...

    def close(self) -> None:
        """End background work. Nothing stored is touched."""
        ...
