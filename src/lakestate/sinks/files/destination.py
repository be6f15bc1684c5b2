"""How the files of a sink are written during an epoch, and what a checkpoint stores about them.

There are two kinds: uploads to an object store, and hidden files in a local directory. Both make bytes
durable and nothing visible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import msgspec
import pyarrow as pa

from lakestate.errors import CorruptionError, IncompatibleStateError, InvalidInputError
from lakestate.sinks.files.lanes import LaneNames
from lakestate.sinks.files.pre_commit import FilePreCommit, OpenReference, Part
from lakestate.sinks.files.snapshots import Snapshot
from lakestate.sinks.formats.format import BatchBufferingWriter, FileFormat
from lakestate.sinks.formats.statistics import FileStatistics
from lakestate.sinks.formats.writer_state import WriterState


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


def open_reference(path: str, resume_point: ResumePoint, snapshot: Snapshot | None) -> OpenReference:
    """What clean-up must keep for this file.

    A file of which no part is stored yet has no token; the next epoch may begin its upload.
    """
    return OpenReference(
        path,
        resume_point.temporary if isinstance(resume_point, LocalResumePoint) else resume_point.token or "",
        "" if snapshot is None else snapshot.path,
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


class CurrentFileRecovery(msgspec.Struct, frozen=True):
    """An open file between two processes: where its bytes are, and what its format writer needs."""

    resume_point: ResumePoint
    state: WriterState
    snapshot: Snapshot | None = None
    """The complete copy that goes with it, if there is one."""


def require_all_taken(path: str, state: WriterState, taken_bytes: int) -> None:
    """Refuse a state that does not begin where the bytes end that were taken from the writer."""
    if state.start != taken_bytes:
        raise CorruptionError(
            "the writer of a file format has lost count of the bytes that were taken from it",
            object_name=path,
            found=f"{state.start} bytes",
            expected=f"{taken_bytes} bytes",
        )


def require_statistics(path: str, found: FileStatistics | None) -> FileStatistics:
    """The statistics of a finished file. A format of somebody else may have forgotten them."""
    if found is None:
        raise InvalidInputError(
            "a file that is to be committed has no statistics",
            object_name=path,
            action="return FileStatistics from `finish` of the writer of a file format",
        )
    return found


@dataclass(frozen=True, slots=True)
class FileEncoding:
    """How the rows of a sink's files become bytes."""

    format: FileFormat
    schema: pa.Schema

    def open_writer(self, state: WriterState | None = None) -> BatchBufferingWriter:
        """A writer of the format, of a new file or of one that continues."""
        return self.format.open_writer(self.schema, state)


class FileWriter(Protocol):
    """Writes one file in one epoch: rows in, durable bytes out. It makes nothing visible."""

    @property
    def file_bytes(self) -> int:
        """The approximate size of the file if it ended now."""
        ...

    def must_roll(self) -> bool:
        """True if the file cannot take many more parts."""
        ...

    def write_batch(self, batch: pa.RecordBatch) -> int:
        """Take rows, and send what is finished, perhaps in the background; the bytes sent so far."""
        ...

    def begin_checkpoint(self) -> None:
        """Send what can be sent. This may continue in the background."""
        ...

    def checkpoint(self) -> CurrentFileRecovery:
        """Wait until everything that was sent is durable; returns how to continue."""
        ...

    def can_snapshot(self) -> bool:
        """Whether a complete copy can be made of the file while it is open."""
        ...

    def snapshot(self) -> FilePreCommit:
        """After a checkpoint: make a complete copy of the file; returns how to make that visible."""
        ...

    def finish(self) -> None:
        """End the file and send the rest of it. This may continue in the background."""
        ...

    def close(self) -> FilePreCommit:
        """End the file, unless that is done, and wait until it is durable; how to make it visible."""
        ...

    def release(self) -> None:
        """Release local resources after a checkpoint. Nothing stored is touched."""
        ...

    def abandon(self) -> None:
        """Release local resources after a failure: this attempt reports nothing."""
        ...


class Destinations(Protocol):
    """Opens the files of one subtask in one epoch."""

    def begin(self, path: str, encoding: FileEncoding) -> FileWriter:
        """A new file."""
        ...

    def resume(self, path: str, recovery: CurrentFileRecovery, encoding: FileEncoding) -> FileWriter:
        """A file as it was at a checkpoint."""
        ...

    def close(self) -> None:
        """End background work. Nothing stored is touched."""
        ...
