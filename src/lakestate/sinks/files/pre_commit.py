"""What a sink's subtask hands to the manifest: the files it finished, and those it keeps open.

Written in one process and used in another, perhaps twice and perhaps much later. Plain values in
MessagePack; reading them runs no code.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lakestate.codec.untrusted import UNDECODABLE
from lakestate.errors import CorruptionError
from lakestate.sinks.files.lanes import LaneNames
from lakestate.sinks.formats.statistics import FileStatistics
from lakestate.storage.store import UploadedPart, UploadId


class Part(msgspec.Struct, frozen=True, array_like=True):
    """A part that is in the store."""

    number: int
    size_bytes: int
    token: str

    @classmethod
    def of(cls, part: UploadedPart) -> Part:
        """The part as it is stored."""
        return cls(part.number, part.size_bytes, part.token)

    @property
    def uploaded(self) -> UploadedPart:
        """The part as stores know it."""
        return UploadedPart(self.number, self.size_bytes, self.token)


class CompletedUpload(msgspec.Struct, frozen=True, tag="upload"):
    """All parts are in the store; completing the upload creates the file."""

    token: str
    parts: tuple[Part, ...]
    lane_names: LaneNames = LaneNames.FILE

    def upload(self, path: str) -> UploadId:
        """The upload of the file at a path."""
        return UploadId(path, self.token)


class SmallObject(msgspec.Struct, frozen=True, tag="object"):
    """The file is so small that its bytes are here; one put creates it."""

    data: bytes


class LocalFile(msgspec.Struct, frozen=True, tag="local"):
    """The file is complete under a hidden name; a rename makes it visible."""

    temporary: str
    crc32: int | None = None


Content = CompletedUpload | SmallObject | LocalFile


class FilePreCommit(msgspec.Struct, frozen=True):
    """A finished file that readers must not see before its epoch is published."""

    path: str
    size_bytes: int
    content: Content
    statistics: FileStatistics
    format: str = ""
    """The format key of the sink that began the file; see `FileSink.format_key`."""
    replaces: tuple[str, ...] = ()
    """Small files that show rows of this one. Together they hold exactly its rows, each once."""
    preview_of: str = ""
    """The file that will replace this one; empty unless this is a small file that shows rows of it."""


class OpenReference(msgspec.Struct, frozen=True, array_like=True):
    """Something unfinished that the epoch's state refers to: an upload, or a hidden local file.

    Without a token no upload had begun: any upload that a later epoch begins for the path is in use.
    """

    path: str
    token: str
    snapshot: str = ""
    """The path of the copy of the file; empty if it has none."""


class PreCommit(msgspec.Struct, frozen=True):
    """One subtask's part of an epoch.

    >>> PreCommit.decode(PreCommit("0123456789ab").encode())
    PreCommit(fingerprint='0123456789ab', finished=(), open=(), subtask_index=0, snapshots=(), dropped=(),
    due_ms=None)
    """

    fingerprint: str = msgspec.field(name="tag")
    """Of the sink; see `sink_fingerprint`. Stored as "tag"."""
    finished: tuple[FilePreCommit, ...] = ()
    open: tuple[OpenReference, ...] = ()
    subtask_index: int = msgspec.field(default=0, name="subtask")
    snapshots: tuple[FilePreCommit, ...] = ()
    """Copies of open files that this epoch made."""
    dropped: tuple[str, ...] = ()
    """The paths of earlier copies that are replaced, or whose files are finished."""
    due_ms: int | None = None
    """When the clock wants a file finished or shown, even if no row comes; None if it never does."""

    def encode(self) -> bytes:
        """The bytes for the manifest."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> PreCommit:
        """The value of the bytes."""
        try:
            return msgspec.msgpack.decode(data, type=cls)
        except UNDECODABLE as cause:
            raise CorruptionError(
                "a sink's pre-commit cannot be read", found=f"{len(data)} bytes: {cause}"
            ) from cause


def has_output(pre_commits: Iterable[bytes]) -> bool:
    """Whether the commit of an epoch has anything to do: show files or copies of them, or remove copies."""
    found = (PreCommit.decode(data) for data in pre_commits)
    return any(each.finished or each.snapshots or each.dropped for each in found)
