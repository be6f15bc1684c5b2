"""The small surface that Lakestate needs from an object store, and the values it speaks.

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
    """What a store gives to tell one content of an object from another. Opaque."""

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
    """The bytes of an object together with the version that they are."""

    data: bytes
    version: Version


@dataclass(frozen=True, slots=True)
class Created:
    """The object did not exist; it does now, with our bytes."""

    version: Version


@dataclass(frozen=True, slots=True)
class AlreadyExists:
    """The object was there before us; this is what it holds. Nothing was written."""

    existing: StoredObject


@dataclass(frozen=True, slots=True)
class Swapped:
    """The object had the expected version; it now holds our bytes."""

    version: Version


@dataclass(frozen=True, slots=True)
class SwapConflict:
    """The object has another version, or is gone (None). Nothing was written."""

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
    """One multipart upload, in a form that another process can pick up."""

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
    """An upload that was started and neither completed nor aborted."""

    upload: UploadId
    started_ms: int


class MultipartUploads(Protocol):
    """Uploads that outlive the process that began them. An unfinished one is not visible."""

    part_bytes_min: int
    """Every part but the last must be at least this long."""

    def start(self, path: str) -> UploadId:
        """Begin an upload of the object at the path."""
        ...

    def put_part(self, upload: UploadId, number: int, data: Data) -> UploadedPart:
        """Upload one part. The same number again replaces it."""
        ...

    def list_parts(self, upload: UploadId) -> tuple[UploadedPart, ...]:
        """The parts the store has, by number. Raises NotFoundError if the upload is gone."""
        ...

    def complete(self, upload: UploadId, parts: Sequence[UploadedPart]) -> ObjectInfo:
        """Make the object visible. Doing it again is success.

        If the upload is gone while the object is there with the size of the parts, it was
        completed before. Otherwise NotFoundError, or CorruptionError for another size.
        """
        ...

    def abort(self, upload: UploadId) -> None:
        """Throw the upload away. An upload that is gone already is success."""
        ...

    def list_dangling(self, prefix: str = "") -> Iterator[DanglingUpload]:
        """Every upload below the prefix that was neither completed nor aborted, in order of path."""
        ...


@runtime_checkable
class ObjectStore(Protocol):
    """Everything Lakestate asks of a store. Thread-safe; pickles as its configuration."""

    @property
    def url(self) -> str:
        """The root, for people: it carries no credential."""
        ...

    @property
    def uploads(self) -> MultipartUploads:
        """The multipart uploads of this store."""
        ...

    def put(self, path: str, data: Data) -> ObjectInfo:
        """Write the object, replacing what was there. Idempotent, and so retried."""
        ...

    def get(self, path: str) -> StoredObject:
        """The whole object. Raises NotFoundError if there is none."""
        ...

    def get_range(self, path: str, span: ByteRange) -> bytes:
        """Exactly the bytes of the span. Raises InvalidInputError if the object ends before."""
        ...

    def get_ranges(self, path: str, spans: Sequence[ByteRange]) -> list[bytes]:
        """Several ranges of one object, fetched in parallel, in the order asked."""
        ...

    def get_many(self, paths: Sequence[str]) -> list[StoredObject]:
        """Several objects, fetched in parallel, in the order asked."""
        ...

    def head(self, path: str) -> ObjectInfo:
        """What the store says about the object. Raises NotFoundError if there is none."""
        ...

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object whose path begins with `prefix`, in order of path.

        `prefix` is matched as text, so `epochs/` lists a folder. Unfinished uploads and
        temporary files are never listed.
        """
        ...

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete the objects. One that is gone already is success."""
        ...

    def create(self, path: str, data: Data) -> CreateOutcome:
        """Write the object only if there is none. Exactly one of many callers is told Created."""
        ...

    def compare_and_swap(self, path: str, data: Data, expected: Version) -> SwapOutcome:
        """Replace the object only if it still has the expected version."""
        ...

    def copy(self, source: str, target: str) -> ObjectInfo:
        """Copy within the store, on the server where the store can."""
        ...
