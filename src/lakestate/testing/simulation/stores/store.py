"""`SimulatedStore`: an object store in a dict that reports every change to an observer.

It passes the store contract, and acts immediately and without faults; `ProcessStore` adds the faults.
The scheduler makes sure that one thread uses it at a time.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Protocol
from weakref import WeakValueDictionary

from lakestate.errors import NotFoundError
from lakestate.storage.object_path import require_folder, require_path, require_prefix
from lakestate.storage.spans import check_spans, require_whole_span
from lakestate.storage.store import (
    AlreadyExists,
    ByteRange,
    Created,
    CreateOutcome,
    Data,
    ObjectInfo,
    StoredObject,
    SwapConflict,
    SwapOutcome,
    Swapped,
    Version,
)
from lakestate.testing.simulation.stores.uploads import SimulatedUploads


class Observer(Protocol):
    """Is called after every change."""

    def on_write(self, store: SimulatedStore, path: str, data: bytes, before: bytes | None) -> None:
        """An object was created or replaced."""
        ...

    def on_delete(self, store: SimulatedStore, path: str) -> None:
        """An existing object was deleted."""
        ...


_STORES: WeakValueDictionary[str, SimulatedStore] = WeakValueDictionary()


class SimulatedStore:
    """Objects in memory, in order of path.

    >>> store = SimulatedStore("docs")
    >>> store.create("a", b"1")
    Created(version=Version(token='1'))
    >>> [info.path for info in store.list()]
    ['a']
    """

    def __init__(
        self, name: str, now_ms: Callable[[], int] = lambda: 0, observer: Observer | None = None
    ) -> None:
        self.name = name
        self.now_ms = now_ms
        self.observer = observer
        self.uploads = SimulatedUploads(self)
        self._objects: dict[str, tuple[StoredObject, int]] = {}
        self._versions = count(1)
        _STORES[name] = self

    def __reduce__(self) -> tuple[object, ...]:
        # Everything runs in one process: unpickling gives the newest store of that name.
        return (_store_named, (self.name,))

    def __repr__(self) -> str:
        return f"SimulatedStore({self.url!r})"

    @property
    def url(self) -> str:
        """The root, for messages."""
        return f"simulated://{self.name}"

    def put(self, path: str, data: Data) -> ObjectInfo:
        """Write the object."""
        before = self._objects.get(path if path in self._objects else require_path(path))
        self._objects[path] = (StoredObject(bytes(data), Version(str(next(self._versions)))), self.now_ms())
        if self.observer is not None:
            self.observer.on_write(self, path, bytes(data), None if before is None else before[0].data)
        return self.head(path)

    def get(self, path: str) -> StoredObject:
        """The whole object."""
        return self._get_entry(path)[0]

    def get_range(self, path: str, span: ByteRange) -> bytes:
        """A part of the object."""
        shown = f"{self.url}/{path}"
        check_spans(shown, [span])
        return require_whole_span(shown, span, self.get(path).data[span.start : span.start + span.length])

    def get_ranges(self, path: str, spans: Sequence[ByteRange]) -> list[bytes]:
        """Several parts of the object."""
        return [self.get_range(path, span) for span in spans]

    def get_many(self, paths: Sequence[str]) -> list[StoredObject]:
        """Several objects."""
        return [self.get(path) for path in paths]

    def head(self, path: str) -> ObjectInfo:
        """What is known about the object."""
        stored, modified_ms = self._get_entry(path)
        return ObjectInfo(path, len(stored.data), modified_ms, stored.version)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """A listing, read completely."""
        require_prefix(prefix)
        return iter([self.head(path) for path in self.paths(prefix)])

    def list_folders(self, folder: str = "") -> Sequence[str]:
        """The folders directly below a folder."""
        below = [path.removeprefix(folder) for path in self.paths(require_folder(folder))]
        return sorted({path.partition("/")[0] for path in below if "/" in path})

    def paths(self, prefix: str = "", after: str = "", count_max: int | None = None) -> builtins.list[str]:
        """The next paths of a listing in pages."""
        found = [path for path in self._objects if path.startswith(prefix) and path > after]
        found.sort()
        return found[:count_max]

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete the objects."""
        for path in paths:
            if self._objects.pop(require_path(path), None) is not None and self.observer is not None:
                self.observer.on_delete(self, path)

    def create(self, path: str, data: Data) -> CreateOutcome:
        """Write the object only if there is none."""
        existing = self._objects.get(require_path(path))
        return Created(self.put(path, data).version) if existing is None else AlreadyExists(existing[0])

    def compare_and_swap(self, path: str, data: Data, expected: Version) -> SwapOutcome:
        """Replace the object only if it has the expected version."""
        existing = self._objects.get(require_path(path))
        if existing is None or existing[0].version != expected:
            return SwapConflict(None if existing is None else existing[0])
        return Swapped(self.put(path, data).version)

    def copy(self, source: str, target: str) -> ObjectInfo:
        """Copy the object."""
        return self.put(target, self.get(source).data)

    def contains(self, path: str) -> bool:
        """Whether there is such an object."""
        return path in self._objects

    def _get_entry(self, path: str) -> tuple[StoredObject, int]:
        found = self._objects.get(path)
        if found is None:
            require_path(path)
            raise NotFoundError("no such object", object_name=f"{self.url}/{path}")
        return found


def _store_named(name: str) -> SimulatedStore:
    return _STORES[name]
