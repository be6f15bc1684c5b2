"""When an epoch without rows is due: the decision, which is pure, and `DueEpochs`, which has its facts.

The engine runs an epoch when there are rows. Steps that follow time need one without: because the watermark
has moved since the newest epoch, or because a time has come for which a step asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakestate.coordinator.job_driver import JobDriver
from lakestate.protocol.metadata import Manifest

AT_ONCE_US = 0
"""Earlier than any time of a job."""


@dataclass(frozen=True, slots=True)
class FollowedTime:
    """Which times the steps of a job follow. A job that follows none never has an epoch without rows."""

    event_time: bool = False
    processing_time: bool = False
    output_time: bool = False
    """That at which sinks finish files, or show rows of them, although none come."""

    def __bool__(self) -> bool:
        return self.event_time or self.processing_time or self.output_time


@dataclass(frozen=True, slots=True)
class TimeReached:
    """What the newest epoch of a job left to do when time passes."""

    watermark_us: int | None
    """That of the newest epoch."""
    next_watermark_us: int | None
    """That which the next epoch would have now."""
    moves_at_us: int | None
    """The processing time at which that moves further, because a source is idle by then."""
    wake_us: int | None
    """The earliest processing time for which a step asked; `AT_ONCE_US` if nobody knows, after a restart."""
    output_us: int | None = None
    """The earliest processing time for which a sink waits. The manifest has it, so a restart knows it too."""


def due_at_us(follows: FollowedTime, reached: TimeReached) -> int | None:
    """The processing time at which the next epoch without rows is due, perhaps long ago; None if none is.

    >>> both = FollowedTime(event_time=True, processing_time=True)
    >>> due_at_us(both, TimeReached(watermark_us=5, next_watermark_us=5, moves_at_us=None, wake_us=70))
    70
    >>> due_at_us(both, TimeReached(watermark_us=5, next_watermark_us=6, moves_at_us=None, wake_us=70))
    0
    """
    times_us = []
    if follows.event_time and _has_moved(reached):
        times_us.append(AT_ONCE_US)
    elif follows.event_time and reached.moves_at_us is not None:
        times_us.append(reached.moves_at_us)
    if follows.processing_time and reached.wake_us is not None:
        times_us.append(reached.wake_us)
    if follows.output_time and reached.output_us is not None:
        times_us.append(reached.output_us)
    return min(times_us, default=None)


def _has_moved(reached: TimeReached) -> bool:
    """Whether operators have not seen the watermark yet that the rows of all epochs give."""
    if reached.next_watermark_us is None:
        return False
    return reached.watermark_us is None or reached.next_watermark_us > reached.watermark_us


class DueEpochs:
    """Follows the newest epoch of one driver.

    For which times steps asked is known only to the driver that ran the epoch. After a restart an epoch
    counts as due once, if a step follows processing time: it asks again.
    """

    def __init__(
        self,
        driver: JobDriver,
        follows: FollowedTime,
        *,
        is_polled: bool = True,
        outputs_due_us: Callable[[Manifest], int | None] = lambda newest: None,
    ) -> None:
        self._driver = driver
        self._follows = follows
        self._outputs_due_us = outputs_due_us
        self._is_polled = is_polled
        """Whether the engine keeps looking for rows: otherwise it reads only what there was at its start."""
        self._wake_us: int | None = AT_ONCE_US

    @property
    def is_possible(self) -> bool:
        """Whether a step follows time at all."""
        return bool(self._follows)

    def note_epoch(self, wake_us: int | None) -> None:
        """An epoch is published, and its steps ask for another one at this time.

        A time that had passed when the epoch began is not asked for again: the epoch was run for it.
        """
        newest = self._driver.parent
        if wake_us is not None and newest is not None:
            wake_us = max(wake_us, newest.started_ms * 1000 + 1)
        self._wake_us = wake_us

    def forget(self) -> None:
        """Another driver has published the newest epoch: what its steps asked for is not known."""
        self._wake_us = AT_ONCE_US

    def due_in_us(self) -> int | None:
        """How long until an epoch is due; zero or less if one is; None if none will be, as things are."""
        newest = self._driver.parent
        if not self._follows or newest is None:
            # A job without any epoch has no state that time could change.
            return None
        now_us, planner = max(self._driver.now_ms(), newest.finished_ms) * 1000, self._driver.planner
        watched = self._driver.watched(self.silent_us())
        reached = TimeReached(
            newest.watermark_us,
            planner.next_watermark_us(newest, watched),
            planner.moves_at_us(newest, watched) if self._is_polled else None,
            self._wake_us,
            self._outputs_due_us(newest) if self._follows.output_time else None,
        )
        due_us = due_at_us(self._follows, reached)
        return None if due_us is None else due_us - now_us

    def silent_us(self) -> int | None:
        """The time until which no source had rows, if there is no batch now; None if nobody has looked."""
        return self._driver.now_ms() * 1000 if self._is_polled else None

    def is_due(self) -> bool:
        """Whether an epoch is due now."""
        due_in_us = self.due_in_us()
        return due_in_us is not None and due_in_us <= 0
