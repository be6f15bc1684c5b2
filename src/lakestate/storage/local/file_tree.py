"""Durable, atomic file operations in one directory tree, safe between processes.

Everything is written under a temporary name, synced, and moved into place in one step, so a kill at
any moment leaves either the old file or the new one. Knows files and directories, not objects.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import time
import uuid
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from lakestate.errors import OutcomeUnknownError, StorageUnavailableError
from lakestate.storage.local.errors import symbolic_link_error
from lakestate.storage.local.file_lock import lock_exclusively
from lakestate.storage.object_path import RESERVED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakestate.storage.store import Data

LOCK_STRIPES = 64
"""Lock files per tree. Paths that share one wait for each other's rename, and for nothing else."""

LOCK_WAIT_S = 60.0
"""A rename takes milliseconds, or seconds on a slow network disk. After this, the holder is stuck."""

TEMPORARY_AGE_MIN_S = 60
"""Younger temporary files are never removed: their owner may not hold the lock yet."""

SWEEP_INTERVAL_S = 600
DURABLE_FOLDERS_MAX = 10_000
COPY_CHUNK_BYTES = 1 << 20
PUBLISH_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class TemporaryFile:
    """A file that is not visible yet. Its owner holds its lock, so no sweep removes it."""

    path: Path
    descriptor: int

    def append(self, data: Data) -> None:
        """Write all of the bytes at the end."""
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]

    def append_from(self, reader: IO[bytes]) -> None:
        """Write the rest of another file at the end."""
        while chunk := reader.read(COPY_CHUNK_BYTES):
            self.append(chunk)

    def sync(self) -> None:
        """Make the content durable, dated now to the nanosecond (see `date_after`)."""
        now_ns = time.time_ns()
        os.utime(self.descriptor, ns=(now_ns, now_ns))
        os.fsync(self.descriptor)

    def date_after(self, target: Path) -> None:
        """Date the file after the one it is about to replace.

        Inode numbers are reused immediately and kernel timestamps advance every few milliseconds, so
        two contents of one path could otherwise have the same version.
        """
        try:
            taken_ns = target.lstat().st_mtime_ns
        except FileNotFoundError:
            return
        if os.fstat(self.descriptor).st_mtime_ns <= taken_ns:
            os.utime(self.descriptor, ns=(taken_ns + 1, taken_ns + 1))
            os.fsync(self.descriptor)


class FileTree:
    """The files below one root directory. Thread-safe; holds no descriptor between calls."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._reserved = self.root / RESERVED
        self._durable: dict[Path, int] = {}
        self._sweep_due_s = 0.0

    @property
    def uploads(self) -> Path:
        """Where unfinished uploads are kept."""
        return self._reserved / "uploads"

    @contextmanager
    def temporary(self) -> Iterator[TemporaryFile]:
        """A new file, removed at the end unless it was published."""
        path = self._temporary_path()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_APPEND
        descriptor = os.open(path, flags, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield TemporaryFile(path, descriptor)
        finally:
            path.unlink(missing_ok=True)
            os.close(descriptor)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Exclude all other processes and threads that lock the same name in this tree.

        A holder renames a file, syncs a folder and releases the lock. An error names one that does not.
        """
        folder = self._reserved / "locks"
        self.ensure_folder(folder)
        stripe = folder / f"{zlib.crc32(name.encode()) % LOCK_STRIPES:02d}"
        descriptor = os.open(stripe, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            lock_exclusively(descriptor, str(stripe), LOCK_WAIT_S)
            yield
        finally:
            # Closing alone would keep the lock while a forked child still has the descriptor.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def publish_replacing(self, temporary: TemporaryFile, target: Path) -> None:
        """Move the file into place, replacing any existing file. The caller holds the path's lock."""

        def move() -> None:
            temporary.date_after(target)
            temporary.path.replace(target)

        self._publish(move, target)

    def publish_new(self, temporary: TemporaryFile, target: Path) -> None:
        """Move the file into place, or raise FileExistsError if there is one. Needs no lock."""
        self._publish(lambda: target.hardlink_to(temporary.path), target)

    def publish_in_existing(self, temporary: TemporaryFile, target: Path) -> None:
        """Like `publish_replacing`, but raise FileNotFoundError if the folder does not exist."""
        temporary.date_after(target)
        temporary.path.replace(target)
        _sync_published(target)

    def publish_folder(self, target: Path, files: dict[str, bytes]) -> None:
        """Create a folder with its first files in one step."""
        folder = self._temporary_path()
        folder.mkdir()
        for name, data in files.items():
            with self.temporary() as file:
                file.append(data)
                file.sync()
                file.path.replace(folder / name)
        fsync_folder(folder)
        self._publish(lambda: folder.rename(target), target)

    def discard_folder(self, folder: Path) -> None:
        """Remove a folder in one visible step. Removing a folder that does not exist succeeds."""
        rubbish = self._temporary_path()
        with suppress(FileNotFoundError):
            folder.rename(rubbish)
        fsync_folder(folder.parent)
        shutil.rmtree(rubbish, ignore_errors=True)

    def remove(self, target: Path) -> None:
        """Remove a file. Removing one that does not exist succeeds. Not durable before `prune`."""
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            target.unlink()

    def prune(self, folder: Path) -> None:
        """Remove the folder and its parents as long as they are empty, and make that durable."""
        while folder != self.root:
            try:
                folder.rmdir()
            except (FileNotFoundError, NotADirectoryError):
                pass
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                break
            self._durable.pop(folder, None)
            folder = folder.parent
        fsync_folder(folder)

    def ensure_folder(self, folder: Path) -> None:
        """Create the folder and its parents, each durable before the next is used.

        A folder that another process has just created may not be durable yet, so the first use in
        this process always syncs the parent.
        """
        try:
            if self._durable.get(folder) == folder.lstat().st_ino:
                return
        except FileNotFoundError:
            pass
        if folder == self.root:
            _create_root(folder)
        else:
            self.ensure_folder(folder.parent)
            with suppress(FileExistsError):
                folder.mkdir()
            fsync_folder(folder.parent)
        # Not followed: a link would let files be written, and moved, outside the root.
        status = folder.lstat()
        if stat.S_ISLNK(status.st_mode):
            raise symbolic_link_error(str(folder))
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "an object is in the way", str(folder))
        if len(self._durable) >= DURABLE_FOLDERS_MAX:
            self._durable.clear()
        self._durable[folder] = status.st_ino

    def _publish(self, move: Callable[[], object], target: Path) -> None:
        for _ in range(PUBLISH_ATTEMPTS):
            try:
                self.ensure_folder(target.parent)
                move()
            except FileNotFoundError:
                # Another process removed the last object of this folder, and so the folder.
                self._durable.pop(target.parent, None)
                continue
            _sync_published(target)
            return
        raise StorageUnavailableError(
            "other processes keep removing the folder", object_name=str(target.parent), action="try later"
        )

    def _temporary_path(self) -> Path:
        folder = self._reserved / "tmp"
        self.ensure_folder(folder)
        if time.monotonic() >= self._sweep_due_s:
            self._sweep_due_s = time.monotonic() + SWEEP_INTERVAL_S
            sweep_temporary(folder, older_than_s=TEMPORARY_AGE_MIN_S)
        return folder / uuid.uuid4().hex


def _sync_published(target: Path) -> None:
    try:
        fsync_folder(target.parent)
    except OSError as error:
        raise OutcomeUnknownError(
            "the file is in place, but may not survive a power loss",
            object_name=str(target),
            found=error.strerror,
            action="check the disk, then read the object",
        ) from error


def fsync_folder(folder: Path) -> None:
    """Make the entries of a folder durable. A folder that does not exist has none."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep_temporary(folder: Path, *, older_than_s: float) -> None:
    """Remove what killed processes left behind: files that are old and not locked.

    Anything else stays: a link or a pipe is not ours, and what cannot be opened or removed is in
    nobody's way. The object that is about to be written has nothing to do with it.
    """
    born_before_s = time.time() - older_than_s
    for leftover in folder.iterdir():
        with suppress(OSError):
            status = leftover.lstat()
            if status.st_mtime >= born_before_s:
                continue
            if stat.S_ISDIR(status.st_mode):
                # A folder is here only for an instant, while it is being filled or discarded.
                shutil.rmtree(leftover, ignore_errors=True)
            elif stat.S_ISREG(status.st_mode):
                _unlink_unless_locked(leftover)


def _unlink_unless_locked(leftover: Path) -> None:
    descriptor = os.open(leftover, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        leftover.unlink(missing_ok=True)
    except BlockingIOError:
        return
    finally:
        os.close(descriptor)


def _create_root(root: Path) -> None:
    missing = [folder for folder in (root, *root.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        fsync_folder(folder.parent)
