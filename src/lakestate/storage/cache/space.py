"""How much the run cache holds, and what is evicted when it is full.

A small counter file, shared by all processes, says when to scan the directory. The counter may be
too high (after a crash) but never too low, so the bound holds. Nothing here waits for an entry:
those in use or being built are skipped.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakestate.storage.cache.entry import (
    DATA_SUFFIX,
    RECORD_SUFFIX,
    TEMPORARY_SUFFIX,
    EntryFiles,
    exclusive_lock,
    try_exclusive,
    try_lock,
    unlink_if_there,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_COUNTER = struct.Struct("<Q")
# Evicting a sixteenth more than needed means that a full cache is scanned once per sixteenth of its
# size, and not at every insert.
_ROOM_SHARE = 16


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What the directory holds now."""

    entries: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Resident:
    name: str
    size_bytes: int
    used_ns: int


class CacheSpace:
    """The bound on a cache directory. One per process; the counter file is shared."""

    __slots__ = ("_bytes_max", "_counter", "_directory")

    def __init__(self, directory: str, bytes_max: int) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._counter = f"{directory}/usage"

    def publish(self, temporary: str, files: EntryFiles, size_bytes: int) -> bool:
        """Give a finished temporary file its name; returns whether the cache is over its bound."""
        with exclusive_lock(self._counter) as descriptor:
            total = _read_counter(descriptor)
            # Count before renaming: a crash in between leaves the counter too high, not too low.
            if total is not None:
                total += size_bytes
                _write_counter(descriptor, total)
            Path(temporary).rename(files.data)
        return total is None or total > self._bytes_max

    def make_room(self) -> int:
        """Evict the least recently used entries until the rest fits; returns how many."""
        # The lock covers scan, eviction and the new count: an entry published in between would be
        # counted in neither, and the counter would stay too low.
        with exclusive_lock(self._counter) as descriptor:
            residents = list(self._residents())
            total = sum(resident.size_bytes for resident in residents)
            evicted = self._evict(residents, total) if total > self._bytes_max else []
            _write_counter(descriptor, total - sum(resident.size_bytes for resident in evicted))
        return len(evicted)

    def occupancy(self) -> Occupancy:
        """Count the entries without changing anything."""
        sizes = [resident.size_bytes for resident in self._residents()]
        return Occupancy(len(sizes), sum(sizes))

    def remove_leftovers(self) -> None:
        """Remove temporary files without an owner: a running process holds a lock on its own."""
        for entry in os.scandir(self._directory):
            if entry.name.endswith(TEMPORARY_SUFFIX):
                _unlink_unless_locked(entry.path, (entry.path,))

    def _evict(self, residents: list[_Resident], total: int) -> list[_Resident]:
        target = self._bytes_max - self._bytes_max // _ROOM_SHARE
        evicted = []
        for resident in sorted(residents, key=lambda resident: resident.used_ns):
            if total <= target:
                break
            if self._evict_one(resident.name):
                evicted.append(resident)
                total -= resident.size_bytes
        return evicted

    def _evict_one(self, name: str) -> bool:
        files = EntryFiles.of(self._directory, name)
        with try_lock(files.lock) as ours:
            return ours and _unlink_unless_locked(files.data, (files.record, files.data))

    def _residents(self) -> Iterator[_Resident]:
        found = {entry.name: entry for entry in os.scandir(self._directory)}
        for file_name, entry in found.items():
            if not file_name.endswith(DATA_SUFFIX):
                continue
            name = file_name.removesuffix(DATA_SUFFIX)
            record = found.get(name + RECORD_SUFFIX)
            # An entry may be removed or replaced during the scan. The next scan sees the result.
            with suppress(FileNotFoundError):
                used_ns = record.stat().st_mtime_ns if record else 0
                yield _Resident(name, entry.stat().st_size, used_ns)


def _unlink_unless_locked(guard: str, paths: tuple[str, ...]) -> bool:
    try:
        descriptor = os.open(guard, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        if not try_exclusive(descriptor):
            return False
        unlink_if_there(paths)
        return True
    finally:
        os.close(descriptor)


def _read_counter(descriptor: int) -> int | None:
    data = os.pread(descriptor, _COUNTER.size, 0)
    return int(_COUNTER.unpack(data)[0]) if len(data) == _COUNTER.size else None


def _write_counter(descriptor: int, total: int) -> None:
    os.pwrite(descriptor, _COUNTER.pack(total), 0)
