"""Computes watermarks: how far event time is complete. Pure.

Each source has its own watermark: the latest event time seen, minus the delay allowed for rows out of
order. The job's watermark is the lowest of them and never goes back. An epoch uses the watermark
computed from earlier epochs, so that all its subtasks agree on it, even when the epoch is run again.

A source that has been idle for a while does not count. Only time in which a driver was there to see its rows
makes it idle: after a pause, what has come meanwhile is still to be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EVENT_TIME_MIN_US = (datetime.min.replace(tzinfo=UTC) - _UNIX_EPOCH) // timedelta(microseconds=1)
EVENT_TIME_MAX_US = (datetime.max.replace(tzinfo=UTC) - _UNIX_EPOCH) // timedelta(microseconds=1)
"""Event times from the years 1 to 9999. Others do not count towards `latest_us`: they are mistakes, such
as milliseconds taken for seconds, and one of them would make all later rows late."""


def source_watermark(previous_us: int | None, latest_us: int | None, delay_us: int) -> int | None:
    """A source's watermark after an epoch with this latest event time, which is None without rows.

    >>> source_watermark(None, 100, 30), source_watermark(90, 100, 30), source_watermark(90, None, 30)
    (70, 90, 90)
    """
    if latest_us is None:
        return previous_us
    reached_us = latest_us - delay_us
    return reached_us if previous_us is None else max(previous_us, reached_us)


@dataclass(frozen=True, slots=True)
class Watched:
    """The processing time in which a driver would have seen rows of a source, if there had been any."""

    since_us: int
    until_us: int


def idle_from_us(rows_at_us: int | None, idle_after_us: int, watched_since_us: int) -> int:
    """The processing time from which a source is idle, if it has no rows until then.

    >>> idle_from_us(100, 60, 0), idle_from_us(100, 60, 500), idle_from_us(None, 60, 500)
    (160, 560, 560)
    """
    active_us = watched_since_us if rows_at_us is None else max(rows_at_us, watched_since_us)
    return active_us + idle_after_us


def job_watermark(
    previous_us: int | None, active_us: Iterable[int | None], idle_us: Iterable[int | None] = ()
) -> int | None:
    """The watermark of the next epoch, from the last one and those of the sources with event time.

    A source without rows so far holds it back, because its rows may have any time. Idle ones do not; if all
    are idle, the greatest of theirs counts.

    >>> job_watermark(None, [70, 50]), job_watermark(60, [70, 50]), job_watermark(60, [70, None])
    (50, 60, 60)
    >>> job_watermark(60, [70], [None, 50]), job_watermark(60, [], [70, 90, None])
    (70, 90)
    >>> job_watermark(None, []) is None
    True
    """
    active = list(active_us)
    known = [time_us for time_us in active or idle_us if time_us is not None]
    if not known or (active and len(known) < len(active)):
        return previous_us
    reached_us = min(known) if active else max(known)
    return reached_us if previous_us is None else max(previous_us, reached_us)


def instant(time_us: int) -> datetime:
    """Microseconds since 1970 as a datetime in UTC, limited to those that `datetime` can represent.

    >>> instant(1_000_000)
    datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.timezone.utc)
    """
    shown_us = min(max(time_us, EVENT_TIME_MIN_US), EVENT_TIME_MAX_US)
    return _UNIX_EPOCH + timedelta(microseconds=shown_us)
