"""Lets Spark send the rows of a task without a pause.

Spark's JVM writes a task to its Python worker in several small pieces over TCP on the loopback interface.
It holds a small piece back until the piece before it is acknowledged, and the system delays an
acknowledgement by 40 ms, in the hope of sending it along with an answer. So each task of a small epoch
waited 40 ms for its rows. A receiver can ask the system, at any time, to acknowledge what has arrived.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

_LOOPBACK = ("127.", "::1")


def acknowledge_input() -> None:
    """Acknowledge at once what has arrived from this machine, and what arrives next.

    The system falls back to delays after this process has sent something, so call it in every task.
    """
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None:
        return
    for descriptor in _sockets():
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
            is_tcp = connection.family in (socket.AF_INET, socket.AF_INET6)
            if is_tcp and connection.getpeername()[0].startswith(_LOOPBACK):
                connection.setsockopt(socket.IPPROTO_TCP, option, 1)


def _sockets() -> list[int]:
    found = []
    with suppress(OSError):
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                if stat.S_ISSOCK(os.fstat(int(entry.name)).st_mode):
                    found.append(int(entry.name))
    return found
