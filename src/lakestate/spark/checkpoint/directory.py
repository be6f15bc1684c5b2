"""The folder of Spark's own logs: a cache of one driver, rebuilt from the manifest at every start.

Every driver has a folder of its own below the directory that it is told to use, so that a driver
which was fenced and one that has taken over never share one, and nothing else there is touched.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from lakestate.errors import InvalidInputError

RANDOM_CHARS = 8
"""What `mkdtemp` appends to a prefix."""


class SparkDirectory:
    """A new folder, locked as long as its driver lives, and removed by it.

    Folders of the same job that a killed driver left behind are removed by the next one on the host.

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
                "Spark's logs cannot be kept there",
                object_name=str(folder),
                found=error.strerror,
                action="give a local directory that this user may write to as spark_checkpoint",
            ) from error

    def remove(self) -> None:
        """Remove the folder. Removing it twice is fine."""
        shutil.rmtree(self.path, ignore_errors=True)
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _create_locked_folder(parent: Path, prefix: str) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with suppress(FileNotFoundError, BlockingIOError):
            descriptor = _lock(path)
            if path.exists():
                return path, descriptor
            # Taken for a leftover in the moment before it was locked.
            os.close(descriptor)


def _sweep(parent: Path, prefix: str) -> None:
    """Remove the folders whose driver is dead: the living hold a lock on theirs."""
    # As long as `mkdtemp` makes names: a job whose name begins like ours has longer ones.
    for path in parent.glob(f"{prefix}{'?' * RANDOM_CHARS}"):
        # Another user's folder, or one that is gone meanwhile, is none of our business.
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
