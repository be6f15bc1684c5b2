"""One entry of the run cache on disk: a data file and the sidecar record that vouches for it.

Names, records, stamps and file locks; nothing here decides what to keep. An entry's names change
only under the lock of its stripe; a reader holds a shared lock on the data file itself. Records are
plain JSON, and one that does not decode counts as absent.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import xxhash

from lakestate.storage.local.file_lock import lock_exclusively

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DATA_SUFFIX = ".run"
RECORD_SUFFIX = ".json"
TEMPORARY_SUFFIX = ".tmp"
LOCKS_DIRECTORY = "locks"
# Stripes are only waited for while another key of the same stripe is built, so there are many
# of them; each is an empty file that exists once it was needed.
_STRIPE_DIGITS = 3
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a data file looked like when its content was known to be right.

    Any write to a file changes its `ctime`, which no program can set back. The boot id is part of
    it because nothing is synced: after a power loss the metadata may have survived the content.
    """

    size_bytes: int
    inode: int
    mtime_ns: int
    ctime_ns: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class EntryRecord:
    """The sidecar: whose data this is, its checksum, and when that was last verified."""

    key: str
    checksum: str
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class EntryFiles:
    """Where an entry's files are, as strings: `Path` costs more than opening the file."""

    data: str
    record: str
    lock: str

    @classmethod
    def of(cls, directory: str, name: str) -> EntryFiles:
        """The files of the entry called `name`."""
        base = f"{directory}/{name}"
        lock = f"{directory}/{LOCKS_DIRECTORY}/{name[:_STRIPE_DIGITS]}"
        return cls(base + DATA_SUFFIX, base + RECORD_SUFFIX, lock)


def entry_name(key: str) -> str:
    """The file name of a key. The record repeats the key, so equal names do no harm."""
    return xxhash.xxh3_128_hexdigest(key.encode())


@cache
def boot_id() -> str:
    """This boot of the machine; where that is unknown, this process trusts only its own stamps."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"unknown-{uuid.uuid4()}"


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file as it is now."""
    return Stamp(status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, boot_id())


def checksum_of(descriptor: int) -> str:
    """The xxh3 checksum of a whole open file."""
    digest = xxhash.xxh3_64()
    chunk = bytearray(_CHUNK_BYTES)
    offset = 0
    while count := os.preadv(descriptor, [chunk], offset):
        digest.update(memoryview(chunk)[:count])
        offset += count
    return digest.hexdigest()


_DECODER = msgspec.json.Decoder(EntryRecord)


def decode_record(data: bytes) -> EntryRecord | None:
    """The record, or None when these bytes are not one."""
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def write_record(files: EntryFiles, record: EntryRecord) -> None:
    """Write the sidecar in place: half of one does not decode, so it needs no atomic rename."""
    Path(files.record).write_bytes(msgspec.json.encode(record))


def unlink_if_there(paths: Iterable[str]) -> None:
    """Remove these names, whichever exist. Readers keep what they have open."""
    for path in paths:
        with suppress(FileNotFoundError):
            Path(path).unlink()


@contextmanager
def exclusive_lock(path: str) -> Iterator[int]:
    """Hold the lock file `path`, waiting for it; gives its descriptor.

    Building an entry may take long, so there is no other bound than that its builder is not stopped.
    """
    descriptor = _open_lock(path)
    try:
        lock_exclusively(descriptor, path, inf)
        yield descriptor
    finally:
        _release(descriptor)


@contextmanager
def try_lock(path: str) -> Iterator[bool]:
    """Hold the lock file `path` if nobody does; says whether it is ours."""
    descriptor = _open_lock(path)
    try:
        yield try_exclusive(descriptor)
    finally:
        _release(descriptor)


def try_exclusive(descriptor: int) -> bool:
    """Lock an open file unless somebody holds a lock on it, shared or exclusive."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open_lock(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except FileNotFoundError:
        # A cleaner of temporary directories has removed ours. Nothing in it is needed.
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)


def _release(descriptor: int) -> None:
    # Unlocked by hand: a process forked meanwhile shares the descriptor and would keep the lock.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
