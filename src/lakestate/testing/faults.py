"""A store that fails on purpose: at a chosen call, before or after it acted.

`FaultyStore` wraps any object store and asks a hook before every call which fault to inject. The
hook is an ordinary function: a script, a seeded generator or a simulator can decide. It may do
anything before it returns, for example let another driver act while this one sleeps. Deterministic:
no clock, no thread and no randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TypeVar

from lakestate.errors import OutcomeUnknownError, StorageUnavailableError
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

Answer = TypeVar("Answer")


class SimulatedCrash(BaseException):
    """The process crashed here. Not an `Exception`, so that no handler in the code catches it."""


class Operation(Enum):
    """The calls of an object store. The hook is called for each path of `delete_many` and `get_many`."""

    PUT = "put"
    GET = "get"
    HEAD = "head"
    LIST = "list"
    DELETE = "delete"
    CREATE = "create"
    SWAP = "compare_and_swap"
    COPY = "copy"
    UPLOAD_START = "uploads.start"
    UPLOAD_PART = "uploads.put_part"
    UPLOAD_LIST_PARTS = "uploads.list_parts"
    UPLOAD_COMPLETE = "uploads.complete"
    UPLOAD_ABORT = "uploads.abort"
    UPLOAD_LIST = "uploads.list_dangling"

    @property
    def writes(self) -> bool:
        """True if the call may change the store."""
        return self not in _READS


_READS = frozenset(
    (Operation.GET, Operation.HEAD, Operation.LIST, Operation.UPLOAD_LIST_PARTS, Operation.UPLOAD_LIST)
)


class Fault(Enum):
    """What goes wrong in one call."""

    NONE = "nothing"
    CRASH_BEFORE = "the process crashes before the store acts"
    CRASH_AFTER = "the process crashes after the store acted"
    UNAVAILABLE = "the store does not act, and reports it"
    REQUEST_LOST = "the store does not act, and the caller cannot know"
    ANSWER_LOST = "the store acts, and the caller cannot know"


@dataclass(frozen=True, slots=True)
class StoreCall:
    """One call: its operation, and its path or prefix."""

    operation: Operation
    path: str

    def __str__(self) -> str:
        return f"{self.operation.value} {self.path}"


Hook = Callable[[Operation, str], Fault]


def no_faults(operation: Operation, path: str) -> Fault:
    """A hook that injects no fault."""
    return Fault.NONE


def faults_at(script: Mapping[int, Fault]) -> Hook:
    """A hook that makes the calls fail whose numbers are in the script, counted from 0.

    >>> hook = faults_at({1: Fault.UNAVAILABLE})
    >>> [hook(Operation.GET, "a").name for _ in range(3)]
    ['NONE', 'UNAVAILABLE', 'NONE']
    """
    numbers = iter(range(2**63))
    return lambda operation, path: script.get(next(numbers), Fault.NONE)


class FaultyStore:
    """Any store, with faults. After a crash every further call crashes too.

    `calls` holds every call so far: a first run without faults shows where a fault can be injected.

    >>> from lakestate.storage import open_store
    >>> store = FaultyStore(open_store("memory://faults"), faults_at({1: Fault.ANSWER_LOST}))
    >>> created = store.create("a", b"1")
    >>> store.create("b", b"2")
    Traceback (most recent call last):
    lakestate.errors.OutcomeUnknownError: the answer was lost: memory://faults/b; ...
    >>> store.get("b").data, [str(call) for call in store.calls]
    (b'2', ['create a', 'create b', 'get b'])
    """

    def __init__(self, inner: ObjectStore, hook: Hook = no_faults) -> None:
        self.inner = inner
        self.hook = hook
        self.calls: list[StoreCall] = []
        self.crashed = False

    def __repr__(self) -> str:
        return f"FaultyStore({self.inner!r})"

    @property
    def url(self) -> str:
        """The root of the wrapped store."""
        return self.inner.url

    @property
    def uploads(self) -> MultipartUploads:
        """Multipart uploads, with the same faults."""
        return _FaultyUploads(self)

    def put(self, path: str, data: Data) -> ObjectInfo:
        """Write the object."""
        return self.perform(Operation.PUT, path, lambda: self.inner.put(path, data))

    def get(self, path: str) -> StoredObject:
        """The whole object."""
        return self.perform(Operation.GET, path, lambda: self.inner.get(path))

    def get_range(self, path: str, span: ByteRange) -> bytes:
        """A part of the object."""
        return self.perform(Operation.GET, path, lambda: self.inner.get_range(path, span))

    def get_ranges(self, path: str, spans: Sequence[ByteRange]) -> list[bytes]:
        """Several parts of the object."""
        return self.perform(Operation.GET, path, lambda: self.inner.get_ranges(path, spans))

    def get_many(self, paths: Sequence[str]) -> list[StoredObject]:
        """Several objects, one after another, because the order of parallel calls is not deterministic."""
        return [self.get(path) for path in paths]

    def head(self, path: str) -> ObjectInfo:
        """What is known about the object."""
        return self.perform(Operation.HEAD, path, lambda: self.inner.head(path))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """A listing, read completely."""
        return iter(self.perform(Operation.LIST, prefix, lambda: [*self.inner.list(prefix)]))

    def list_folders(self, folder: str = "") -> Sequence[str]:
        """A listing of folders, read completely."""
        return self.perform(Operation.LIST, folder, lambda: self.inner.list_folders(folder))

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete one after another, because a crash may come between any two."""
        for path in paths:
            self.perform(Operation.DELETE, path, partial(self.inner.delete_many, [path]))

    def create(self, path: str, data: Data) -> CreateOutcome:
        """Write the object only if there is none."""
        return self.perform(Operation.CREATE, path, lambda: self.inner.create(path, data))

    def compare_and_swap(self, path: str, data: Data, expected: Version) -> SwapOutcome:
        """Replace the object only if it has the expected version."""
        return self.perform(Operation.SWAP, path, lambda: self.inner.compare_and_swap(path, data, expected))

    def copy(self, source: str, target: str) -> ObjectInfo:
        """Copy the object. The recorded path is the target's."""
        return self.perform(Operation.COPY, target, lambda: self.inner.copy(source, target))

    def perform(self, operation: Operation, path: str, act: Callable[[], Answer]) -> Answer:
        """Do one call with the fault that the hook chooses."""
        if self.crashed:
            raise SimulatedCrash(f"{operation.value} {path}: the process has crashed")
        self.calls.append(StoreCall(operation, path))
        match self.hook(operation, path):
            case Fault.NONE:
                return act()
            case Fault.CRASH_BEFORE:
                raise self._crash(f"before {operation.value} {path}")
            case Fault.CRASH_AFTER:
                act()
                raise self._crash(f"after {operation.value} {path}")
            case Fault.UNAVAILABLE:
                raise self._unavailable(path)
            case Fault.REQUEST_LOST:
                raise self._lost_answer_error(operation, path)
            case Fault.ANSWER_LOST:
                act()
                raise self._lost_answer_error(operation, path)

    def _crash(self, moment: str) -> SimulatedCrash:
        self.crashed = True
        return SimulatedCrash(moment)

    def _unavailable(self, path: str) -> StorageUnavailableError:
        return StorageUnavailableError("the store does not answer", object_name=f"{self.url}/{path}")

    def _lost_answer_error(
        self, operation: Operation, path: str
    ) -> StorageUnavailableError | OutcomeUnknownError:
        # A read changes nothing, so its outcome is never unknown.
        if not operation.writes:
            return self._unavailable(path)
        return OutcomeUnknownError(
            "the answer was lost", object_name=f"{self.url}/{path}", action="look before acting"
        )


class _FaultyUploads:
    def __init__(self, store: FaultyStore) -> None:
        self.store = store
        self.part_bytes_min = store.inner.uploads.part_bytes_min

    def start(self, path: str) -> UploadId:
        return self.store.perform(Operation.UPLOAD_START, path, lambda: self._inner.start(path))

    def put_part(self, upload: UploadId, number: int, data: Data) -> UploadedPart:
        return self.store.perform(
            Operation.UPLOAD_PART, upload.path, lambda: self._inner.put_part(upload, number, data)
        )

    def list_parts(self, upload: UploadId) -> tuple[UploadedPart, ...]:
        return self.store.perform(
            Operation.UPLOAD_LIST_PARTS, upload.path, lambda: self._inner.list_parts(upload)
        )

    def complete(self, upload: UploadId, parts: Sequence[UploadedPart]) -> ObjectInfo:
        return self.store.perform(
            Operation.UPLOAD_COMPLETE, upload.path, lambda: self._inner.complete(upload, parts)
        )

    def abort(self, upload: UploadId) -> None:
        self.store.perform(Operation.UPLOAD_ABORT, upload.path, lambda: self._inner.abort(upload))

    def list_dangling(self, prefix: str = "") -> Iterator[DanglingUpload]:
        found = self.store.perform(
            Operation.UPLOAD_LIST, prefix, lambda: [*self._inner.list_dangling(prefix)]
        )
        return iter(found)

    @property
    def _inner(self) -> MultipartUploads:
        return self.store.inner.uploads
