"""What a run costs: the processor time of all its processes, and the time that passes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread

import psutil

SAMPLE_S = 0.05


@dataclass
class Usage:
    """The cost of a run, known when it is over."""

    cpu_s: float = 0.0
    clock_s: float = 0.0


class _Watch:
    """Reads the processor time of a process and its descendants, again and again.

    That of a process which has ended cannot be read, so its last value counts. What the reading itself takes
    is left out where it is done by a process that counts.
    """

    def __init__(self, root: int, without: int | None) -> None:
        self._root = root
        self._without = without
        self._seconds: dict[tuple[int, float], float] = {}
        self._done = Event()
        self._reading_s = 0.0
        self.sample()
        self._before = self._used()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        self._done.set()
        self._thread.join()
        self.sample()
        return self._used() - self._before

    def _used(self) -> float:
        return sum(self._seconds.values()) - self._reading_s

    def _run(self) -> None:
        while not self._done.wait(SAMPLE_S):
            self.sample()

    def sample(self) -> None:
        started = time.thread_time()
        self._read()
        if self._root == os.getpid():
            self._reading_s += time.thread_time() - started

    def _read(self) -> None:
        root = psutil.Process(self._root)
        left_out = set()
        if self._without is not None:
            other = psutil.Process(self._without)
            left_out = {other, *other.children(recursive=True)}
        for process in [root, *root.children(recursive=True)]:
            with suppress(psutil.Error):
                if process not in left_out:
                    used = process.cpu_times()
                    self._seconds[process.pid, process.create_time()] = used.user + used.system


@contextmanager
def measured(root: int | None = None, *, without: int | None = None) -> Iterator[Usage]:
    """Measure a block: this process and all that it started, or another one.

    `without` is a process that this one has started, and that belongs to somebody else.
    """
    usage = Usage()
    watch, started = _Watch(root or os.getpid(), without), time.perf_counter()
    try:
        yield usage
    finally:
        usage.clock_s = time.perf_counter() - started
        usage.cpu_s = watch.stop()
