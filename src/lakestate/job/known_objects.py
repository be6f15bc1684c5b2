"""Immutable metadata objects that this process has written or read, so that none is fetched twice.

A driver holds those of its newest epoch, and hands subtasks what they need with their plan. What is
held is still compared with each reference to it: a reference that names other bytes is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from threading import Lock

from lakestate.protocol.metadata import SubtaskMetadata


@dataclass(slots=True)
class _Known:
    data: bytes
    metadata: SubtaskMetadata | None = None


class KnownObjects:
    """Metadata of subtasks by its path below the job's root. Safe with threads.

    >>> known = KnownObjects()
    >>> known.add("checkpoints/1/operator-op-0.metadata", b"metadata")
    >>> known.keep_only([])
    >>> known.get("checkpoints/1/operator-op-0.metadata")
    """

    def __init__(self) -> None:
        self._objects: dict[str, _Known] = {}
        self._lock = Lock()

    def get(self, path: str) -> bytes | None:
        """The bytes of an object, or None."""
        found = self._objects.get(path)
        return None if found is None else found.data

    def add(self, path: str, data: bytes) -> None:
        """Hold an object."""
        with self._lock:
            self._objects[path] = _Known(data)

    def decode(self, path: str, data: bytes, decode: Callable[[bytes], SubtaskMetadata]) -> SubtaskMetadata:
        """What the bytes of an object say. Those that are held are decoded once."""
        known = self._objects.get(path)
        if known is None or known.data is not data:
            return decode(data)
        if known.metadata is None:
            known.metadata = decode(data)
        return known.metadata

    def keep_only(self, paths: Collection[str]) -> None:
        """Forget all other objects."""
        with self._lock:
            self._objects = {path: self._objects[path] for path in paths if path in self._objects}
