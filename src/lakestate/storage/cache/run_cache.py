"""A bounded directory of immutable files, shared by all processes of a host.

It holds local copies of runs: everything in it can be rebuilt, and nothing in it is trusted without
its record (`entry`). `space` decides what to evict. File locks are the only coordination, so a
process may be killed at any moment.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from lakestate.errors import InvalidInputError, LakestateError, StorageUnavailableError
from lakestate.storage.cache.entry import (
    LOCKS_DIRECTORY,
    TEMPORARY_SUFFIX,
    EntryFiles,
    EntryRecord,
    Stamp,
    checksum_of,
    decode_record,
    entry_name,
    exclusive_lock,
    group_suffix,
    stamp_of,
    unlink_if_there,
    write_record,
)
from lakestate.storage.cache.space import CacheSpace
from lakestate.storage.local.private_folder import require_private_folder

if TYPE_CHECKING:
    from types import TracebackType

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}
_UNUSABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG}
# Eviction needs no finer clock, and a hot entry then costs at most one write per second.
_TOUCH_INTERVAL_NS = 1_000_000_000
_RECORD_BYTES_MAX = 64 * 1024
# Remembering an entry takes about 300 bytes; after forgetting one, its checksum is computed again.
_VERIFIED_MAX = 10_000
_VERIFIED: dict[str, Stamp] = {}
"""The data files whose content this process has verified, whichever cache object opened them, and when."""
ENTRIES_MAX = 16_384
"""By default. An entry is two small files; a directory with very many is slow to scan."""
_DESCRIPTORS = "/proc/self/fd"
_HAS_DESCRIPTOR_PATHS = Path(_DESCRIPTORS).is_dir()

Build = Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What the directory holds, and how this process has used it."""

    entries: int
    size_bytes: int
    hits: int
    misses: int
    evictions: int


class CachedFile:
    """An entry in use. It is not evicted until this handle is closed or garbage-collected."""

    __slots__ = ("__weakref__", "_descriptor", "_path", "size_bytes")

    def __init__(self, descriptor: int, path: str, size_bytes: int) -> None:
        self._descriptor = descriptor
        self._path = path
        self.size_bytes = size_bytes

    @property
    def path(self) -> Path:
        """The path of the file, for code that cannot use a memory map."""
        return Path(self._path)

    @property
    def identity(self) -> tuple[int, int, int]:
        """Distinguishes this content from any other that the entry's name may refer to."""
        status = os.fstat(self._descriptor)
        return status.st_dev, status.st_ino, status.st_ctime_ns

    def memory_map(self) -> pa.MemoryMappedFile:
        """Map the file. Buffers read from the map stay valid after `close`."""
        if self._descriptor < 0:
            raise InvalidInputError(
                "the cached file is closed", object_name=self._path, action="open it again"
            )
        # Through the descriptor, because the name may by now belong to a rebuilt file.
        source = f"{_DESCRIPTORS}/{self._descriptor}" if _HAS_DESCRIPTOR_PATHS else self._path
        return pa.memory_map(source)

    def close(self) -> None:
        """Allow the entry to be evicted. Closing twice is allowed."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            # Close without unlocking: a forked process that shares the lock keeps holding it.
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"CachedFile({self._path!r}, size_bytes={self.size_bytes})"


class RunCache:
    """Files by key, built once per host and kept while there is room.

    A file that was written to after it was built is detected at every open, by its stamp. A stamp does
    not show that a disk returns wrong bytes, so the first open in each process also verifies the
    checksum of the whole file. A file that does not match is built again.

    There are at most `bytes_max` bytes and `entries_max` entries that are not in use: an entry larger
    than `bytes_max` is built, can be used as long as it is open, and is evicted first afterwards. Files
    being built are not counted. To make room, up to a sixteenth more than needed is evicted.

    The directory must be one that no other user can write to.

    >>> import tempfile
    >>> directory = tempfile.TemporaryDirectory()
    >>> cache = RunCache(Path(directory.name), bytes_max=1_000_000)
    >>> with cache.open("runs/a.parquet", lambda path: path.write_bytes(b"content")) as file:
    ...     file.memory_map().read()
    b'content'
    >>> with cache.open("runs/a.parquet", build=lambda path: print("not called: it is there")) as file:
    ...     file.size_bytes
    7
    >>> cache.stats()
    CacheStats(entries=1, size_bytes=7, hits=1, misses=1, evictions=0)
    >>> directory.cleanup()
    """

    def __init__(self, directory: Path, bytes_max: int, entries_max: int = ENTRIES_MAX) -> None:
        if bytes_max <= 0 or entries_max <= 0:
            raise InvalidInputError(
                "a run cache needs room",
                object_name=str(directory),
                found=f"{bytes_max} bytes, {entries_max} entries",
            )
        self._directory = str(directory.resolve())
        with self._translate_errors():
            # Whoever can write there could replace a run and its record, and so what a job computes.
            require_private_folder(directory)
            Path(self._directory, LOCKS_DIRECTORY).mkdir(mode=0o700, exist_ok=True)
        self._space = CacheSpace(self._directory, bytes_max, entries_max)
        self._lock = threading.Lock()
        self._hits = self._misses = self._evictions = 0
        self._swept = False

    def open(self, key: str, build: Build) -> CachedFile:
        """The file of `key`, from the cache or else created by `build`.

        `build` writes to the given path, in place, and must not open this cache: others that need
        the key wait for it. If it fails, nothing is left behind.
        """
        files = EntryFiles.of(self._directory, entry_name(key))
        with self._translate_errors():
            file = self._open_trusted(files, key)
        return file if file is not None else self._open_or_build(files, key, build)

    def find(self, key: str) -> CachedFile | None:
        """The file of `key` if it is cached, or None. Waits for a process that is building it."""
        files = EntryFiles.of(self._directory, entry_name(key))
        with self._translate_errors():
            file = self._open_trusted(files, key)
            if file is not None:
                return file
            with exclusive_lock(files.lock):
                return self._open_trusted(files, key) or self._open_verified(files, key)

    def discard(self, keys: Sequence[str]) -> None:
        """Remove the files of these keys, except those in use or being built. None need be there."""
        with self._translate_errors():
            self._count(evictions=self._space.discard([entry_name(key) for key in keys]))

    def discard_groups(self, groups: Sequence[str]) -> None:
        """Like `discard`, of every key `group#part` with any part. Scans the directory once."""
        with self._translate_errors():
            names = self._space.names_ending([group_suffix(group) for group in groups])
            self._count(evictions=self._space.discard(names))

    def stats(self) -> CacheStats:
        """Counts entries and bytes by scanning the directory."""
        with self._translate_errors():
            held = self._space.occupancy()
        return CacheStats(held.entries, held.size_bytes, self._hits, self._misses, self._evictions)

    def _open_or_build(self, files: EntryFiles, key: str, build: Build) -> CachedFile:
        with self._translate_errors(), exclusive_lock(files.lock):
            # The previous holder of the lock may have built or verified it.
            file = self._open_trusted(files, key) or self._open_verified(files, key)
            if file is not None:
                return file
            file, full = self._insert(files, key, build)
        if full or not self._swept:
            self._sweep()
        return file

    def _open_trusted(self, files: EntryFiles, key: str) -> CachedFile | None:
        descriptor = _open_shared(files)
        if descriptor is None:
            return None
        file = _cached_file(descriptor, files)
        record = _read_record(files)
        # An entry evicted since we opened it has no record any more, and its `ctime` has changed.
        if record is None or record.key != key or record.stamp != stamp_of(os.fstat(descriptor)):
            file.close()
            return None
        if _VERIFIED.get(files.data) != record.stamp:
            if checksum_of(descriptor) != record.checksum:
                file.close()
                return None
            _remember(files, record.stamp)
        self._count(hits=1)
        return file

    def _open_verified(self, files: EntryFiles, key: str) -> CachedFile | None:
        descriptor = _open_shared(files)
        if descriptor is not None:
            file = _cached_file(descriptor, files)
            if (stamp := _restamp_if_intact(descriptor, files, key)) is not None:
                _remember(files, stamp)
                self._count(hits=1)
                return file
            file.close()
        unlink_if_there((files.record, files.data))
        return None

    def _insert(self, files: EntryFiles, key: str, build: Build) -> tuple[CachedFile, bool]:
        temporary, descriptor = self._create_temporary()
        try:
            build(Path(temporary))
            full = self._publish(temporary, descriptor, files, key)
        except BaseException:
            os.close(descriptor)
            unlink_if_there((temporary, files.record, files.data))
            raise
        self._count(misses=1)
        return _cached_file(descriptor, files), full

    def _publish(self, temporary: str, descriptor: int, files: EntryFiles, key: str) -> bool:
        if Path(temporary).stat().st_ino != os.fstat(descriptor).st_ino:
            raise InvalidInputError("a cached file must be written in place", object_name=key)
        checksum = checksum_of(descriptor)
        full = self._space.publish(temporary, files, os.fstat(descriptor).st_size)
        # Not atomic, but evicting the entry in between would need the stripe's lock, which we hold.
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        # Stamp last, because renaming changes the `ctime`.
        stamp = stamp_of(os.fstat(descriptor))
        write_record(files, EntryRecord(key, checksum, stamp))
        _remember(files, stamp)
        return full

    def _create_temporary(self) -> tuple[str, int]:
        while True:
            path = f"{self._directory}/{uuid.uuid4().hex}{TEMPORARY_SUFFIX}"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return path, descriptor
            # Another process took it for a leftover before it was locked.
            os.close(descriptor)

    def _sweep(self) -> None:
        with self._translate_errors():
            self._swept = True
            self._space.remove_leftovers()
            self._count(evictions=self._space.make_room())

    def _count(self, hits: int = 0, misses: int = 0, evictions: int = 0) -> None:
        with self._lock:
            self._hits += hits
            self._misses += misses
            self._evictions += evictions

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            explanation = self._explanation(error)
            if explanation is None:
                raise
            raise explanation from error

    def _explanation(self, error: OSError) -> LakestateError | None:
        if error.errno in _DISK_FULL:
            return StorageUnavailableError(
                "the disk of the run cache is full",
                object_name=self._directory,
                action="free some space there, reduce the size of the cache, or move it to another disk",
            )
        # Other errors of `build`, for example from the network, do not concern this directory.
        if not str(error.filename or "").startswith(self._directory):
            return None
        kind = InvalidInputError if error.errno in _UNUSABLE else StorageUnavailableError
        return kind(
            "the run cache cannot use its directory",
            object_name=self._directory,
            found=error.strerror,
            action="make it a directory that this user can write to, or configure another",
        )


def _remember(files: EntryFiles, stamp: Stamp) -> None:
    """Remember that this process has verified the content."""
    if len(_VERIFIED) >= _VERIFIED_MAX:
        _VERIFIED.clear()
    _VERIFIED[files.data] = stamp


def _cached_file(descriptor: int, files: EntryFiles) -> CachedFile:
    return CachedFile(descriptor, files.data, os.fstat(descriptor).st_size)


def _open_shared(files: EntryFiles) -> int | None:
    try:
        descriptor = os.open(files.data, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        # A process that holds the entry's lock file is publishing or evicting it: wait for that lock.
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _read_record(files: EntryFiles) -> EntryRecord | None:
    try:
        descriptor = os.open(files.record, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        _touch(descriptor)
        return decode_record(os.read(descriptor, _RECORD_BYTES_MAX))
    finally:
        os.close(descriptor)


def _touch(descriptor: int) -> None:
    now_ns = time.time_ns()
    if now_ns - os.fstat(descriptor).st_mtime_ns > _TOUCH_INTERVAL_NS:
        # On the record, never on the data file, whose `ctime` would change. Another user's record
        # cannot be touched; that entry merely looks older than it is.
        with suppress(PermissionError):
            os.utime(descriptor, ns=(now_ns, now_ns))


def _restamp_if_intact(descriptor: int, files: EntryFiles, key: str) -> Stamp | None:
    """Stamp a file again if its content still matches its record; returns the stamp or None."""
    record = _read_record(files)
    # Taken before reading, so that a concurrent write does not get the new stamp.
    stamp = stamp_of(os.fstat(descriptor))
    if record is None or record.key != key or record.stamp.size_bytes != stamp.size_bytes:
        return None
    if checksum_of(descriptor) != record.checksum:
        return None
    write_record(files, replace(record, stamp=stamp))
    return stamp
