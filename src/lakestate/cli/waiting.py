"""Progress of what takes longer than a second, on the terminal of whoever waits, and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, Timer

from rich.console import Console
from rich.status import Status

from lakestate.cli.cells import printable
from lakestate.cli.failures import for_command_line

PATIENCE_SECONDS = 1.0
"""What is done sooner shows nothing."""


class Waiting:
    """A line that says what is being done. It appears when that takes longer than a second."""

    def __init__(self, text: str, console: Console) -> None:
        self._status = Status(text, console=console)
        self._lock = Lock()
        self._is_over = False
        self._timer = Timer(PATIENCE_SECONDS, self._appear)
        self._timer.daemon = True

    def start(self) -> None:
        """Begin to count the second."""
        self._timer.start()

    def update(self, text: str) -> None:
        """Say something else."""
        self._status.update(text)

    def stop(self) -> None:
        """Remove the line."""
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            self._status.stop()

    def _appear(self) -> None:
        with self._lock:
            if not self._is_over:
                self._status.start()


_shown: list[Waiting] = []
"""The line that is there, if any: what is done as a part of something else has none of its own."""


@contextmanager
def waiting(text: str) -> Iterator[Waiting]:
    """Show what is being done, if standard error is a terminal and it takes longer than a second."""
    if _shown:
        yield _shown[0]
        return
    console = Console(stderr=True)
    line = Waiting(text, console)
    if console.is_terminal:
        line.start()
    _shown.append(line)
    try:
        yield line
    finally:
        _shown.clear()
        line.stop()


def note(text: str) -> None:
    """Say something to people that is not a result."""
    sys.stderr.write(f"{printable(for_command_line(text))}\n")
