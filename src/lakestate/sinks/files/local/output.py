"""A local directory as a sink's output: hidden files that grow, and one rename that makes them visible.

Several processes may believe that a hidden file is theirs: an attempt that was abandoned may still run.
A process therefore appends to a file only under its lock, and only if the file is exactly as long as the
checkpoint says; otherwise it copies the bytes of the checkpoint to a new file. So bytes that a checkpoint
refers to are never overwritten or cut off, and a finished file, whose length or name differs from the
checkpoint, is never appended to. A checksum that is carried from epoch to epoch proves at the end that
the visible file holds what was written.
"""

from __future__ import annotations

import errno
import fcntl
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from lakestate.errors import FILE_OR_GO_BACK, CorruptionError, NotFoundError
from lakestate.sinks.files.local.snapshot_folder import SnapshotFolder
from lakestate.sinks.files.local.stored_bytes import checksum_of, size_of
from lakestate.storage.local.errors import translate_read_errors, translate_write_errors
from lakestate.storage.local.file_tree import FileTree, fsync_folder
from lakestate.storage.local.object_files import object_file
from lakestate.storage.object_path import RESERVED, require_path

OPEN_FOLDER = f"{RESERVED}/open"
COPY_CHUNK_BYTES = 1 << 20
_CANNOT_COPY = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF}
"""What a system or file system without `copy_file_range` answers."""


@dataclass
class HiddenFile:
    """A hidden file that this process appends to. Its lock lasts until it is closed."""

    path: Path
    descriptor: int
    position: int
    crc32: int | None = 0
    """Of all bytes up to the position. None if the file continues from a checkpoint that has none."""

    def append(self, data: bytes) -> None:
        """Write all of the bytes at the end."""
        with translate_write_errors(str(self.path)):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self.descriptor, rest) :]
        self.position += len(data)
        if self.crc32 is not None:
            self.crc32 = zlib.crc32(data, self.crc32)

    def sync(self) -> None:
        """Make everything durable, and check that it is all there."""
        with translate_write_errors(str(self.path)):
            os.fsync(self.descriptor)
            found = os.fstat(self.descriptor).st_size
        if found != self.position:
            raise CorruptionError(
                "another process has written to a hidden file",
                object_name=str(self.path),
                found=f"{found} bytes",
                expected=f"{self.position} bytes",
            )

    def truncate(self, position: int) -> None:
        """Cut off bytes that this process appended, under its lock."""
        with translate_write_errors(str(self.path)):
            os.ftruncate(self.descriptor, position)
        self.position = position

    @property
    def is_closed(self) -> bool:
        """True if the lock is released."""
        return self.descriptor < 0

    def close(self) -> None:
        """Release the lock."""
        if self.descriptor >= 0:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
            os.close(self.descriptor)
            self.descriptor = -1


class LocalOutput:
    """The hidden and the visible files below one directory."""

    def __init__(self, root: Path) -> None:
        self._tree = FileTree(root)
        self._open = self._tree.root / OPEN_FOLDER
        self.snapshots = SnapshotFolder(self._tree)

    @property
    def root(self) -> Path:
        """The directory that readers list."""
        return self._tree.root

    def require_place(self, path: str) -> None:
        """Refuse a visible path that a symbolic link is part of. After publication it would be too late."""
        object_file(self._tree.root, path)

    def create(self, temporary: str) -> HiddenFile:
        """A new hidden file, durable as a name."""
        path = self._hidden_path(temporary)
        with translate_write_errors(str(path)):
            self._tree.ensure_folder(self._open)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            fsync_folder(self._open)
        return HiddenFile(path, descriptor, 0)

    def reopen(self, temporary: str, position: int, crc32: int | None, otherwise: str) -> HiddenFile:
        """The hidden file at a position, or a copy named `otherwise` if it cannot be appended to."""
        path = self._hidden_path(temporary)
        with translate_read_errors(str(path)):
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        file = HiddenFile(path, descriptor, position, crc32)
        size = os.fstat(descriptor).st_size
        if size < position:
            os.close(descriptor)
            raise _lost_bytes_error(path, size, position)
        # The size counts only under the lock: without it, another process may be about to append.
        if _try_lock(descriptor) and os.fstat(descriptor).st_size == position:
            return file
        try:
            return self.copy_to(file, otherwise)
        finally:
            os.close(descriptor)

    def copy_to(self, source: HiddenFile, temporary: str) -> HiddenFile:
        """A new hidden file with the bytes of another up to its position."""
        target = self.create(temporary)
        try:
            _copy(source, target)
        except BaseException:
            target.close()
            raise
        return target

    def publish_snapshot(self, temporary: str, path: str, size_bytes: int) -> None:
        """Make a complete copy of an open file visible. Doing it again is success."""
        self.snapshots.publish(self._hidden_path(temporary), path, size_bytes)

    def publish(self, temporary: str, path: str, size_bytes: int, crc32: int | None = None) -> None:
        """Make a finished file visible under its own name. Doing it again is success.

        All of it is read and checked first: it may have been open for hours.
        """
        hidden, target = self._hidden_path(temporary), object_file(self._tree.root, path)
        if size_of(target) == size_bytes:
            return
        found = size_of(hidden)
        if found is None:
            raise _missing_file_error(hidden, target, size_of(target), size_bytes)
        if found != size_bytes:
            raise CorruptionError(
                "a hidden file is not as long as it was when it was finished",
                object_name=str(hidden),
                found=f"{found} bytes",
                expected=f"{size_bytes} bytes",
            )
        if crc32 is not None and (found := self.checksum(temporary, size_bytes)) not in (None, crc32):
            raise _changed_content_error(hidden, found, crc32)
        with translate_write_errors(str(target)):
            self._tree.ensure_folder(target.parent)
            # Another process may be publishing the same file at the same moment.
            try:
                hidden.rename(target)
            except FileNotFoundError:
                if size_of(target) != size_bytes:
                    raise
            fsync_folder(target.parent)
            fsync_folder(self._open)

    def size_bytes(self, temporary: str) -> int | None:
        """The length of a hidden file; None if it is gone."""
        return size_of(self._hidden_path(temporary))

    def checksum(self, temporary: str, size_bytes: int) -> int | None:
        """The CRC-32 of the first bytes of a hidden file; None if it is gone or not that long."""
        return checksum_of(self._hidden_path(temporary), size_bytes)

    def hidden_files(self) -> list[str]:
        """The names of all hidden files."""
        try:
            return sorted(entry.name for entry in os.scandir(self._open))
        except FileNotFoundError:
            return []

    def remove(self, temporary: str) -> None:
        """Remove a hidden file; one that is gone is success."""
        path = self._hidden_path(temporary)
        with translate_write_errors(str(path)):
            path.unlink(missing_ok=True)

    def _hidden_path(self, temporary: str) -> Path:
        name = require_path(temporary)
        if "/" in name:
            raise CorruptionError("not the name of a hidden file", object_name=name)
        return self._open / name


def _copy(source: HiddenFile, target: HiddenFile) -> None:
    with translate_write_errors(str(target.path)):
        _copy_in_kernel(source, target)
    while target.position < source.position:
        missing = min(COPY_CHUNK_BYTES, source.position - target.position)
        with translate_read_errors(str(source.path)):
            data = os.pread(source.descriptor, missing, target.position)
        if not data:
            raise _lost_bytes_error(source.path, target.position, source.position)
        target.append(data)
    # The checksum of the checkpoint: if the copied bytes differ from it, publishing finds out.
    target.crc32 = source.crc32


def _copy_in_kernel(source: HiddenFile, target: HiddenFile) -> None:
    """Copy as much as the system can: some file systems share the blocks, and then it costs nothing."""
    if not hasattr(os, "copy_file_range"):
        return
    # The system refuses to copy into a descriptor that only appends.
    descriptor = os.open(target.path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        while target.position < source.position:
            missing, position = source.position - target.position, target.position
            copied = os.copy_file_range(source.descriptor, descriptor, missing, position, position)
            if not copied:
                return
            target.position += copied
    except OSError as error:
        if error.errno not in _CANNOT_COPY:
            raise
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lost_bytes_error(path: Path, found: int, expected: int) -> CorruptionError:
    return CorruptionError(
        "an open file has lost bytes that a checkpoint refers to",
        object_name=str(path),
        found=f"{found} bytes",
        expected=f"at least {expected} bytes",
        action=FILE_OR_GO_BACK,
    )


def _changed_content_error(path: Path, found: int | None, expected: int) -> CorruptionError:
    return CorruptionError(
        "a hidden file does not hold what was written to it",
        object_name=str(path),
        found=f"CRC-32 {found or 0:08x}",
        expected=f"CRC-32 {expected:08x}",
        action=FILE_OR_GO_BACK,
    )


def _missing_file_error(
    hidden: Path, target: Path, found: int | None, expected: int
) -> NotFoundError | CorruptionError:
    if found is not None:
        return CorruptionError(
            "the file in place is not the one that was finished",
            object_name=str(target),
            found=f"{found} bytes",
            expected=f"{expected} bytes",
        )
    return NotFoundError(
        "a finished file is gone, and nothing is in its place",
        object_name=str(target),
        expected=str(hidden),
        action=FILE_OR_GO_BACK,
    )
