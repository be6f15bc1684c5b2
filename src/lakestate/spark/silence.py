"""`SilenceWatch`: a thread that runs an epoch without rows when a stream has been silent and one is due."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Thread

from lakestate.coordinator.engine.due_epochs import DueEpochs


class SilenceWatch:
    """Sleeps until an epoch is due, and wakes when there was another one.

    `run` is called in the thread, and asks `is_due` again when nothing else can run an epoch any more.
    `quiet_s` is how long no epoch must have run; None switches the watch off.
    """

    def __init__(self, due: DueEpochs, quiet_s: float | None, run: Callable[[], None]) -> None:
        self._due = due
        self._quiet_s = quiet_s
        self._run = run
        self._wake = Event()
        self._last_epoch = time.monotonic()
        self.is_over = False

    def start(self) -> None:
        """Begin to watch, if there is anything to watch for."""
        if self._quiet_s is not None and self._due.is_possible:
            Thread(target=self._watch, name="lakestate-silence", daemon=True).start()

    def note_epoch(self) -> None:
        """An epoch has ended, or Spark's query was launched: the stream was not silent just now."""
        self._last_epoch = time.monotonic()
        self._wake.set()

    def stop(self) -> None:
        """Watch no longer. An epoch that is running finishes."""
        self.is_over = True
        self._wake.set()

    def is_due(self) -> bool:
        """Whether the stream has been silent for long enough, and an epoch is due."""
        left_s = self._left_s()
        return not self.is_over and left_s is not None and left_s <= 0

    def _watch(self) -> None:
        while not self.is_over:
            left_s = self._left_s()
            if left_s is not None and left_s <= 0:
                # If the query decides not to run one, it is about to stop, or to launch Spark's query again.
                self._run()
                left_s = None
            self._wake.wait(left_s)
            self._wake.clear()

    def _left_s(self) -> float | None:
        due_in_us = self._due.due_in_us()
        if due_in_us is None or self._quiet_s is None:
            return None
        return max(due_in_us / 1_000_000, self._last_epoch + self._quiet_s - time.monotonic())
