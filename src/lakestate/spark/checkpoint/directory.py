"""The folder of Spark's own logs: a cache of one driver, rebuilt from the manifest at every start.

Every driver creates its own folder below the given directory. A fenced driver and the one that took over
therefore never share a folder, and nothing else in the directory is touched.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from lakestate.errors import InvalidInputError, StorageUnavailableError

FULL_DISK = ("No space left on device", "Disk quota exceeded")
RANDOM_CHARS = 8
"""The number of characters that `mkdtemp` appends to a prefix."""


class SparkDirectory:
    """A new folder, which its driver keeps locked while it runs and removes at the end.

    The next driver of the job on this host removes the folder of a driver that was killed.

    >>> with tempfile.TemporaryDirectory() as parent:
    ...     directory = SparkDirectory(Path(parent), "totals")
    ...     print(directory.path.name.startswith("lakestate-spark-totals-"), directory.path.is_dir())
    ...     directory.remove()
    ...     print(list(Path(parent).iterdir()))
    True True
    []
    """

    def __init__(self, parent: Path | None, job_id: str) -> None:
        folder = Path(tempfile.gettempdir() if parent is None else parent).absolute()
        prefix = f"lakestate-spark-{job_id}-"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _sweep(folder, prefix)
            self.path, self._descriptor = _create_locked_folder(folder, prefix)
        except OSError as error:
            raise InvalidInputError(
                "Spark's logs cannot be kept in this directory",
                object_name=str(folder),
                found=error.strerror,
                action="set spark_checkpoint to a local directory that this user may write to",
            ) from error

    def remove(self) -> None:
        """Remove the folder. Removing it twice is fine."""
        shutil.rmtree(self.path, ignore_errors=True)
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def full_disk_error(failure: Exception, directory: Path) -> StorageUnavailableError | None:
    """What to raise if Spark, or we, could not write its logs because the disk is full; None otherwise."""
    text = str(failure)
    found = next((reason for reason in FULL_DISK if reason in text), None)
    if found is None:
        return None
    return StorageUnavailableError(
        "Spark cannot write its logs",
        object_name=str(directory.parent),
        found=found,
        action="make room there, or set spark_checkpoint to a directory on another disk, and start the job "
        "again: its logs are rebuilt from the newest epoch, and nothing is lost",
    )


def _create_locked_folder(parent: Path, prefix: str) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with suppress(FileNotFoundError, BlockingIOError):
            descriptor = _lock(path)
            if path.exists():
                return path, descriptor
            # Another driver swept it away in the moment before it was locked.
            os.close(descriptor)


def _sweep(parent: Path, prefix: str) -> None:
    """Remove the folders whose driver has ended: a running driver holds a lock on its folder."""
    # Names of exactly this length: a job whose id begins with this job's id has longer ones.
    for path in parent.glob(f"{prefix}{'?' * RANDOM_CHARS}"):
        # Ignore folders of other users, and those that disappear meanwhile.
        with suppress(OSError):
            descriptor = _lock(path)
            shutil.rmtree(path, ignore_errors=True)
            os.close(descriptor)


def _lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    return descriptor
