"""The small interface that Lakestate needs from an object store, and its values.

Paths are relative to the store's root, with `/` between their parts. Every implementation
passes `lakestate.testing.StoreContract`. Nothing above this layer knows which store it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

Data = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Version:
    """An opaque token that distinguishes one content of an object from another."""

    token: str


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing or a `head` says about an object."""

    path: str
    size_bytes: int
    modified_ms: int
    version: Version


@dataclass(frozen=True, slots=True)
class StoredObject:
    """The bytes of an object and the version they belong to."""

    data: bytes
    version: Version


@dataclass(frozen=True, slots=True)
class Created:
    """The object did not exist. It now holds our bytes."""

    version: Version


@dataclass(frozen=True, slots=True)
class AlreadyExists:
    """The object already existed, with this content. Nothing was written."""

    existing: StoredObject


@dataclass(frozen=True, slots=True)
class Swapped:
    """The object had the expected version. It now holds our bytes."""

    version: Version


@dataclass(frozen=True, slots=True)
class SwapConflict:
    """The object has another version, or does not exist (None). Nothing was written."""

    existing: StoredObject | None


CreateOutcome = Created | AlreadyExists
SwapOutcome = Swapped | SwapConflict


@dataclass(frozen=True, slots=True)
class ByteRange:
    """`length` bytes from `start`."""

    start: int
    length: int


@dataclass(frozen=True, slots=True)
class UploadId:
    """One multipart upload, in a form that another process can continue."""

    path: str
    token: str


@dataclass(frozen=True, slots=True)
class UploadedPart:
    """A finished part. `number` starts at 1; `token` is the store's receipt for it."""

    number: int
    size_bytes: int
    token: str


@dataclass(frozen=True, slots=True)
class DanglingUpload:
    """An upload that was started but neither completed nor aborted."""

    upload: UploadId
    started_ms: int


class MultipartUploads(Protocol):
    """Uploads that outlive the process that started them. An unfinished upload is not visible."""

    part_bytes_min: int
    """The minimum length of every part except the last."""

    def start(self, path: str) -> UploadId:
        """Start an upload of the object at the path."""
        ...

    def put_part(self, upload: UploadId, number: int, data: Data) -> UploadedPart:
        """Upload one part. Uploading the same number again replaces it."""
        ...

    def list_parts(self, upload: UploadId) -> tuple[UploadedPart, ...]:
        """The parts in the store, by number. Raises NotFoundError if the upload does not exist."""
        ...

    def complete(self, upload: UploadId, parts: Sequence[UploadedPart]) -> ObjectInfo:
        """Make the object visible. Completing an upload twice succeeds.

        If the upload no longer exists but the object does, with the size of the parts, it was
        completed earlier. Otherwise raises NotFoundError, or CorruptionError for another size.
        """
        ...

    def abort(self, upload: UploadId) -> None:
        """Discard the upload. Aborting an upload that no longer exists succeeds."""
        ...

    def list_dangling(self, prefix: str = "") -> Iterator[DanglingUpload]:
        """Every upload below the prefix that was neither completed nor aborted, in order of path."""
        ...


@runtime_checkable
class ObjectStore(Protocol):
    """Everything Lakestate needs from a store. Thread-safe; pickles as its configuration."""

    @property
    def url(self) -> str:
        """The root, for display. It contains no credential."""
        ...

    @property
    def uploads(self) -> MultipartUploads:
        """The multipart uploads of this store."""
        ...

    def put(self, path: str, data: Data) -> ObjectInfo:
        """Write the object, replacing any previous content. Idempotent, and therefore retried."""
        ...

    def get(self, path: str) -> StoredObject:
        """The whole object. Raises NotFoundError if it does not exist."""
        ...

    def get_range(self, path: str, span: ByteRange) -> bytes:
        """Exactly the bytes of the span. Raises InvalidInputError if the object is too short."""
        ...

    def get_ranges(self, path: str, spans: Sequence[ByteRange]) -> list[bytes]:
        """Several ranges of one object, fetched in parallel, in the order requested."""
        ...

    def get_many(self, paths: Sequence[str]) -> list[StoredObject]:
        """Several objects, fetched in parallel, in the order requested."""
        ...

    def head(self, path: str) -> ObjectInfo:
        """Size, time and version of the object. Raises NotFoundError if it does not exist."""
        ...

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object whose path begins with `prefix`, in order of path.

        `prefix` is matched as text, so `epochs/` lists a folder. Unfinished uploads and
        temporary files are never listed.
        """
        ...

    def list_folders(self, folder: str = "") -> Sequence[str]:
        """The names of the folders directly below a folder, in order. What is inside them is not listed.

        `folder` is empty for the root, or ends with `/`. A store may list a folder that has become empty.
        """
        ...

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete the objects. Deleting an object that does not exist succeeds."""
        ...

    def create(self, path: str, data: Data) -> CreateOutcome:
        """Write the object only if it does not exist. Exactly one of many callers gets `Created`."""
        ...

    def compare_and_swap(self, path: str, data: Data, expected: Version) -> SwapOutcome:
        """Replace the object only if it still has the expected version."""
        ...

    def copy(self, source: str, target: str) -> ObjectInfo:
        """Copy within the store, on the server where the store supports it."""
        ...
