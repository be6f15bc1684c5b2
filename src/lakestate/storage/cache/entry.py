"""One entry of the run cache on disk: a data file and the record that vouches for it.

Names, records, stamps and file locks. Nothing here decides what to keep. An entry's files are created
and removed only under the lock of its stripe; a reader holds a shared lock on the data file itself.
Records are plain JSON, and one that does not decode counts as absent.
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
from lakestate.storage.local.private_folder import require_private_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DATA_SUFFIX = ".run"
RECORD_SUFFIX = ".json"
TEMPORARY_SUFFIX = ".tmp"
LOCKS_DIRECTORY = "locks"
# A process waits for a stripe only while another key of the same stripe is built, so there are many
# stripes. Each is an empty file, created when it is first needed.
_STRIPE_DIGITS = 3
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Stamp:
    """The state of a data file when its content was last known to be correct.

    Any write to a file changes its `ctime`, which no program can set back. The boot id is included
    because nothing is synced: after a power loss, metadata may survive without the content.
    """

    size_bytes: int
    inode: int
    mtime_ns: int
    ctime_ns: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class EntryRecord:
    """The record of an entry: its key, its checksum, and the state in which that was last verified."""

    key: str
    checksum: str
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class EntryFiles:
    """The paths of an entry's files, as strings: making a `Path` costs more than opening the file."""

    data: str
    record: str
    lock: str

    @classmethod
    def of(cls, directory: str, name: str) -> EntryFiles:
        """The files of the entry with this name."""
        base = f"{directory}/{name}"
        lock = f"{directory}/{LOCKS_DIRECTORY}/{name[:_STRIPE_DIGITS]}"
        return cls(base + DATA_SUFFIX, base + RECORD_SUFFIX, lock)


def entry_name(key: str) -> str:
    """The file name of a key. The record repeats the key, so a collision does no harm.

    It ends like the names of all keys of its group. It does not begin like them: then they would all
    have the same lock.
    """
    return xxhash.xxh3_64_hexdigest(key.encode()) + group_suffix(key.rpartition("#")[0] or key)


def group_suffix(group: str) -> str:
    """What the names of a group's entries end with. The keys of a group are `group#part`."""
    return xxhash.xxh3_64_hexdigest(group.encode())


@cache
def boot_id() -> str:
    """The id of this boot of the machine. Where it is unknown, a process trusts only its own stamps."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"unknown-{uuid.uuid4()}"


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file in its present state."""
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
    """The record, or None if the bytes are not one."""
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def write_record(files: EntryFiles, record: EntryRecord) -> None:
    """Write the record in place. A partial record does not decode, so no atomic rename is needed."""
    descriptor = os.open(files.record, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(record))


def unlink_if_there(paths: Iterable[str]) -> None:
    """Remove those of the files that exist. Readers keep what they have open."""
    for path in paths:
        with suppress(FileNotFoundError):
            Path(path).unlink()


@contextmanager
def exclusive_lock(path: str) -> Iterator[int]:
    """Wait for the lock file `path` and hold it; yields its descriptor.

    Building an entry may take long, so the wait ends early only if the builder is stopped.
    """
    descriptor = _open_lock(path)
    try:
        lock_exclusively(descriptor, path, inf)
        yield descriptor
    finally:
        _release(descriptor)


@contextmanager
def try_lock(path: str) -> Iterator[bool]:
    """Hold the lock file `path` if it is free; yields whether it is held."""
    descriptor = _open_lock(path)
    try:
        yield try_exclusive(descriptor)
    finally:
        _release(descriptor)


def try_exclusive(descriptor: int) -> bool:
    """Lock an open file unless another process holds a lock on it, shared or exclusive."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open_lock(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:
        # A cleaner of temporary directories has removed ours. Everything in it can be rebuilt.
        require_private_folder(Path(path).parent)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _release(descriptor: int) -> None:
    # Unlock explicitly: a process forked meanwhile shares the descriptor and would keep the lock.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
