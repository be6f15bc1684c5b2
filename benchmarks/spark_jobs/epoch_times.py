"""When epochs of a query end, by the clock and in processor time of the JVM and all Python processes."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import pairwise
from threading import Event, Thread
from typing import Any

import psutil

WARM_UP = 2
"""Epochs that are not counted."""
POLL_S = 0.03
CPU_SAMPLE_S = 0.1


class Times:
    """When epochs ended, in wall-clock time and in processor time of all processes that this one started.

    `with_this_process` counts this one too, without what looking costs: where the driver of a pipeline does
    part of the work. For Spark's own queries it only waits.
    """

    def __init__(self, *, with_this_process: bool = False) -> None:
        self._with_this_process = with_this_process
        self._looking_s = 0.0
        self._ends: list[tuple[float, float]] = []
        self._seconds: dict[tuple[int, float], float] = {}
        self._done = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    def epoch_ended(self) -> None:
        self._sample()
        self._ends.append((time.perf_counter(), sum(self._seconds.values()) - self._looking_s))

    def stop(self) -> Times:
        self._done.set()
        self._thread.join()
        return self

    @property
    def clock_ms(self) -> list[float]:
        """The duration of each epoch after the first ones."""
        return [(end[0] - start[0]) * 1000 for start, end in pairwise(self._ends[WARM_UP - 1 :])]

    @property
    def cpu_ms(self) -> float:
        """The average processor time of an epoch after the first ones."""
        first, last = self._ends[WARM_UP - 1], self._ends[-1]
        return (last[1] - first[1]) * 1000 / (len(self._ends) - WARM_UP)

    def _watch(self) -> None:
        # The processor time of a worker that has ended cannot be read, so keep the last value.
        while not self._done.wait(CPU_SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        started, this = time.thread_time(), psutil.Process()
        for process in [*this.children(recursive=True), *([this] if self._with_this_process else [])]:
            with suppress(psutil.Error):
                used = process.cpu_times()
                self._seconds[process.pid, process.create_time()] = used.user + used.system
        if self._with_this_process:
            self._looking_s += time.thread_time() - started


def batch_times(writer: Any) -> Times:
    """Run a query of Spark's over all that there is."""
    times, seen = Times(), -1
    query = writer.trigger(availableNow=True).start()
    while not query.awaitTermination(POLL_S) or query.lastProgress["batchId"] > seen:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] > seen:
            seen = progress["batchId"]
            times.epoch_ended()
    return times.stop()
