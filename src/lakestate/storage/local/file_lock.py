"""Waits for a lock on a file, and names its holder when the wait times out.

A stopped process (SIGSTOP, a debugger, a frozen container) keeps its locks for as long as it exists.
A process that waits for one must not wait forever in silence.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lakestate.errors import StorageUnavailableError

STOPPED_WAIT_S = 5.0
"""How long to wait for a holder that is stopped. It may be stopped only briefly."""

_POLL_FIRST_S = 0.0005
_POLL_MAX_S = 0.02
_LOCKS = Path("/proc/locks")


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A process that holds a lock."""

    pid: int
    is_stopped: bool

    def __str__(self) -> str:
        return f"process {self.pid}" + (", which is stopped" if self.is_stopped else "")


def lock_exclusively(descriptor: int, path: str, wait_s: float) -> None:
    """Lock an open file, or raise StorageUnavailableError that names the holder.

    Waits at most `wait_s`, and at most `STOPPED_WAIT_S` if the holder is stopped.
    """
    started_s = time.monotonic()
    pause_s = _POLL_FIRST_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited_s = time.monotonic() - started_s
            if waited_s >= min(wait_s, STOPPED_WAIT_S):
                _give_up_if_hopeless(descriptor, path, waited_s >= wait_s)
        else:
            return
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _POLL_MAX_S)


def holder_of(descriptor: int) -> LockHolder | None:
    """The process that holds a lock on the file, if the system reports it."""
    inode = str(os.fstat(descriptor).st_ino)
    with suppress(OSError):
        for line in _LOCKS.read_text().splitlines():
            fields = line.split()
            # A line with an arrow is a waiting process.
            if "->" not in fields and len(fields) > 5 and fields[5].rpartition(":")[2] == inode:
                return LockHolder(int(fields[4]), _is_stopped(int(fields[4])))
    return None


def _give_up_if_hopeless(descriptor: int, path: str, is_overdue: bool) -> None:
    holder = holder_of(descriptor)
    if not is_overdue and (holder is None or not holder.is_stopped):
        return
    raise StorageUnavailableError(
        "a lock is held by a process that does not release it",
        object_name=path,
        found="a process that the system does not identify" if holder is None else holder,
        action="let it continue (kill -CONT), or end it (kill -KILL), which releases its locks",
    )


def _is_stopped(pid: int) -> bool:
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state in ("T", "t")
    return False
