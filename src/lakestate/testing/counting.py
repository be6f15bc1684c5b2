"""A store that counts: requests by kind and object, and bytes, as an object store would charge them.

`CountingStore` wraps any store. Requests are what S3 would see: one for each object of `get_many`, one
for each merged span of `get_ranges`, one for each thousand objects of a listing or a deletion. Retries
below the wrapped store are not seen.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from lakestate.job.state_backend import StateBackend
from lakestate.protocol.paths import parse_object_name
from lakestate.storage.spans import merge_spans
from lakestate.storage.store import (
    ByteRange,
    CreateOutcome,
    DanglingUpload,
    Data,
    MultipartUploads,
    ObjectInfo,
    ObjectStore,
    StoredObject,
    SwapOutcome,
    UploadedPart,
    UploadId,
    Version,
)
from lakestate.testing.faults import Operation

Answer = TypeVar("Answer")

PAGE_OBJECTS = 1000
"""Objects in one answer of a listing, and in one request to delete."""


@dataclass(frozen=True, slots=True)
class Request:
    """A kind of request: what was asked, and what the object is in its job."""

    operation: Operation
    kind: str

    def __str__(self) -> str:
        return f"{self.operation.value} {self.kind}"


@dataclass
class RequestCount:
    """What was asked of a store."""

    requests: Counter[Request] = field(default_factory=Counter)
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def writes(self) -> int:
        """Requests that store something. Deletions, which cost nothing, are not among them."""
        return sum(
            count
            for request, count in self.requests.items()
            if request.operation.writes and request.operation is not Operation.DELETE
        )

    @property
    def reads(self) -> int:
        """Requests that fetch an object or look at it."""
        return self._count(Operation.GET, Operation.HEAD)

    @property
    def lists(self) -> int:
        """Pages of listings."""
        return self._count(Operation.LIST, Operation.UPLOAD_LIST, Operation.UPLOAD_LIST_PARTS)

    @property
    def deletes(self) -> int:
        """Requests to delete, each of up to a thousand objects."""
        return self._count(Operation.DELETE)

    @property
    def total(self) -> int:
        """All requests."""
        return self.requests.total()

    def shown(self) -> dict[str, int]:
        """Requests by kind, as text, in order."""
        return {str(request): count for request, count in sorted(self.requests.items(), key=_by_text)}

    def _count(self, *operations: Operation) -> int:
        return sum(count for request, count in self.requests.items() if request.operation in operations)


def _by_text(item: tuple[Request, int]) -> str:
    return str(item[0])


class CountingStore:
    """Any store, with its requests counted. Safe with threads; what it counted stays in this process.

    >>> from lakestate.storage import open_store
    >>> store = CountingStore(open_store("memory://counted"))
    >>> created = store.create("job/epochs/0000000001.json", b"{}")
    >>> found = store.get_many(["job/epochs/0000000001.json"] * 2)
    >>> store.counted.shown(), store.counted.bytes_read
    ({'create epoch record': 1, 'get epoch record': 2}, 4)
    """

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.counted = RequestCount()
        self._lock = threading.Lock()

    def take(self) -> RequestCount:
        """What was counted since the last call."""
        with self._lock:
            taken, self.counted = self.counted, RequestCount()
        return taken

    @property
    def url(self) -> str:
        """The root of the wrapped store."""
        return self.inner.url

    @property
    def uploads(self) -> MultipartUploads:
        """Multipart uploads, counted too."""
        return _CountingUploads(self)

    def put(self, path: str, data: Data) -> ObjectInfo:
        """Write the object."""
        self.count(Operation.PUT, path, written=len(data))
        return self.inner.put(path, data)

    def get(self, path: str) -> StoredObject:
        """The whole object."""
        return self._read(path, lambda: self.inner.get(path), lambda found: len(found.data))

    def get_range(self, path: str, span: ByteRange) -> bytes:
        """A part of the object."""
        return self._read(path, lambda: self.inner.get_range(path, span), len)

    def get_ranges(self, path: str, spans: Sequence[ByteRange]) -> list[bytes]:
        """Several parts of the object. Neighbours are fetched together, gaps included."""
        for span in merge_spans(spans):
            self.count(Operation.GET, path, read=span.length)
        return self.inner.get_ranges(path, spans)

    def get_many(self, paths: Sequence[str]) -> list[StoredObject]:
        """Several objects."""
        found = self.inner.get_many(paths)
        for path, item in zip(paths, found, strict=True):
            self.count(Operation.GET, path, read=len(item.data))
        return found

    def head(self, path: str) -> ObjectInfo:
        """What is known about the object."""
        self.count(Operation.HEAD, path)
        return self.inner.head(path)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """A listing, read completely."""
        found = [*self.inner.list(prefix)]
        self.count(Operation.LIST, prefix, times=_pages(len(found)))
        return iter(found)

    def list_folders(self, folder: str = "") -> Sequence[str]:
        """A listing of folders."""
        found = self.inner.list_folders(folder)
        self.count(Operation.LIST, folder, times=_pages(len(found)))
        return found

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete the objects."""
        wanted = [*paths]
        if wanted:
            self.count(Operation.DELETE, wanted[0], times=_pages(len(wanted)))
        self.inner.delete_many(wanted)

    def create(self, path: str, data: Data) -> CreateOutcome:
        """Write the object only if there is none."""
        self.count(Operation.CREATE, path, written=len(data))
        return self.inner.create(path, data)

    def compare_and_swap(self, path: str, data: Data, expected: Version) -> SwapOutcome:
        """Replace the object only if it has the expected version."""
        self.count(Operation.SWAP, path, written=len(data))
        return self.inner.compare_and_swap(path, data, expected)

    def copy(self, source: str, target: str) -> ObjectInfo:
        """Copy the object."""
        self.count(Operation.COPY, target)
        return self.inner.copy(source, target)

    def count(
        self, operation: Operation, path: str, *, times: int = 1, read: int = 0, written: int = 0
    ) -> None:
        """Count requests for an object, and the bytes that they move."""
        with self._lock:
            self.counted.requests[Request(operation, _kind(path))] += times
            self.counted.bytes_read += read
            self.counted.bytes_written += written

    def _read(self, path: str, act: Callable[[], Answer], size: Callable[[Answer], int]) -> Answer:
        try:
            found = act()
        except BaseException:
            self.count(Operation.GET, path)
            raise
        self.count(Operation.GET, path, read=size(found))
        return found


class _CountingUploads:
    def __init__(self, store: CountingStore) -> None:
        self._store = store
        self._inner = store.inner.uploads
        self.part_bytes_min = self._inner.part_bytes_min

    def start(self, path: str) -> UploadId:
        self._store.count(Operation.UPLOAD_START, path)
        return self._inner.start(path)

    def put_part(self, upload: UploadId, number: int, data: Data) -> UploadedPart:
        self._store.count(Operation.UPLOAD_PART, upload.path, written=len(data))
        return self._inner.put_part(upload, number, data)

    def list_parts(self, upload: UploadId) -> tuple[UploadedPart, ...]:
        self._store.count(Operation.UPLOAD_LIST_PARTS, upload.path)
        return self._inner.list_parts(upload)

    def complete(self, upload: UploadId, parts: Sequence[UploadedPart]) -> ObjectInfo:
        self._store.count(Operation.UPLOAD_COMPLETE, upload.path)
        return self._inner.complete(upload, parts)

    def abort(self, upload: UploadId) -> None:
        self._store.count(Operation.UPLOAD_ABORT, upload.path)
        self._inner.abort(upload)

    def list_dangling(self, prefix: str = "") -> Iterator[DanglingUpload]:
        found = [*self._inner.list_dangling(prefix)]
        self._store.count(Operation.UPLOAD_LIST, prefix, times=_pages(len(found)))
        return iter(found)


def count_requests(backend: StateBackend) -> CountingStore:
    """Count what a backend asks of its store from now on, in this process.

    >>> import lakestate as ls
    >>> backend = ls.ParquetBackend("memory://docs-count-requests")
    >>> counting = count_requests(backend)
    >>> backend.newest_checkpoint("job")
    >>> counting.take().shown()
    {'list epoch record': 1}
    """
    counting = CountingStore(backend._store)
    backend._store = counting
    return counting


def _pages(count: int) -> int:
    return max(1, -(-count // PAGE_OBJECTS))


_FOLDERS = {"": "job", "epochs/": "epoch record", "tags/": "tag"}


def _kind(path: str) -> str:
    """What an object or a listed folder is, below the folder of its job."""
    below = path.partition("/")[2]
    return _FOLDERS.get(below) or parse_object_name(below).kind.value
