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
    from collections.abc import Collection, Iterator, Sequence

_COUNTER = struct.Struct("<QQ")
"""Bytes and entries."""
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

    __slots__ = ("_bytes_max", "_counter", "_directory", "_entries_max")

    def __init__(self, directory: str, bytes_max: int, entries_max: int) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._entries_max = entries_max
        self._counter = f"{directory}/usage"

    def publish(self, temporary: str, files: EntryFiles, size_bytes: int) -> bool:
        """Give a finished temporary file its name; returns whether the cache is over its bound."""
        with exclusive_lock(self._counter) as descriptor:
            held = _read_counter(descriptor)
            # Count before renaming: a crash in between leaves the counter too high, not too low.
            if held is not None:
                held = Occupancy(held.entries + 1, held.size_bytes + size_bytes)
                _write_counter(descriptor, held)
            Path(temporary).rename(files.data)
        return held is None or self._is_over(held)

    def make_room(self) -> int:
        """Evict the least recently used entries until the rest fits; returns how many."""
        # The lock covers scan, eviction and the new count: an entry published in between would be
        # counted in neither, and the counter would stay too low.
        with exclusive_lock(self._counter) as descriptor:
            residents = list(self._residents())
            evicted = self._evict(residents) if self._is_over(_occupancy(residents)) else []
            _write_counter(descriptor, _less(_occupancy(residents), evicted))
        return len(evicted)

    def discard(self, names: Sequence[str]) -> int:
        """Remove these entries, unless they are in use; returns how many were removed."""
        # Under the lock, as in `make_room`: a scan in between would count them out a second time.
        with exclusive_lock(self._counter) as descriptor:
            removed = [found for name in names if (found := self._remove(name)) is not None]
            held = _read_counter(descriptor)
            if held is not None:
                _write_counter(descriptor, _less(held, removed))
        return len(removed)

    def names_ending(self, suffixes: Collection[str]) -> list[str]:
        """The names of entries that end with one of these, by a scan of the directory."""
        names = (entry.name for entry in os.scandir(self._directory) if entry.name.endswith(DATA_SUFFIX))
        endings = tuple(suffixes)
        return [name for file in names if (name := file.removesuffix(DATA_SUFFIX)).endswith(endings)]

    def _remove(self, name: str) -> _Resident | None:
        try:
            size_bytes = Path(EntryFiles.of(self._directory, name).data).stat().st_size
        except FileNotFoundError:
            return None
        return _Resident(name, size_bytes, 0) if self._evict_one(name) else None

    def occupancy(self) -> Occupancy:
        """Count the entries without changing anything."""
        return _occupancy(list(self._residents()))

    def remove_leftovers(self) -> None:
        """Remove temporary files without an owner: a running process holds a lock on its own."""
        for entry in os.scandir(self._directory):
            if entry.name.endswith(TEMPORARY_SUFFIX):
                _unlink_unless_locked(entry.path, (entry.path,))

    def _is_over(self, held: Occupancy) -> bool:
        return held.size_bytes > self._bytes_max or held.entries > self._entries_max

    def _evict(self, residents: list[_Resident]) -> list[_Resident]:
        held = _occupancy(residents)
        bytes_kept = self._bytes_max - self._bytes_max // _ROOM_SHARE
        entries_kept = self._entries_max - self._entries_max // _ROOM_SHARE
        evicted: list[_Resident] = []
        for resident in sorted(residents, key=lambda resident: resident.used_ns):
            if held.size_bytes <= bytes_kept and held.entries <= entries_kept:
                break
            if self._evict_one(resident.name):
                evicted.append(resident)
                held = _less(held, [resident])
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


def _occupancy(residents: list[_Resident]) -> Occupancy:
    return Occupancy(len(residents), sum(resident.size_bytes for resident in residents))


def _less(held: Occupancy, removed: list[_Resident]) -> Occupancy:
    gone = _occupancy(removed)
    return Occupancy(max(0, held.entries - gone.entries), max(0, held.size_bytes - gone.size_bytes))


def _read_counter(descriptor: int) -> Occupancy | None:
    data = os.pread(descriptor, _COUNTER.size, 0)
    if len(data) != _COUNTER.size:
        return None
    size_bytes, entries = _COUNTER.unpack(data)
    return Occupancy(entries, size_bytes)


def _write_counter(descriptor: int, held: Occupancy) -> None:
    os.pwrite(descriptor, _COUNTER.pack(held.size_bytes, held.entries), 0)
