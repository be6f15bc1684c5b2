"""Computes watermarks: how far event time is complete. Pure.

Each source has its own watermark: the latest event time seen, minus the delay allowed for rows out of
order. The job's watermark is the lowest of them and never goes back. An epoch uses the watermark
computed from earlier epochs, so that all its subtasks agree on it, even when the epoch is run again.
"""

from __future__ import annotations

from collections.abc import Iterable
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


def job_watermark(previous_us: int | None, sources_us: Iterable[int | None]) -> int | None:
    """The watermark of the next epoch, from the last one and those of the sources with event time.

    A source without rows so far holds it back, because its rows may have any time.

    >>> job_watermark(None, [70, 50]), job_watermark(60, [70, 50]), job_watermark(60, [70, None])
    (50, 60, 60)
    >>> job_watermark(None, []) is None
    True
    """
    reached = list(sources_us)
    known = [time_us for time_us in reached if time_us is not None]
    if not known or len(known) < len(reached):
        return previous_us
    return min(known) if previous_us is None else max(previous_us, min(known))


def instant(time_us: int) -> datetime:
    """Microseconds since 1970 as a datetime in UTC, limited to those that `datetime` can represent.

    >>> instant(1_000_000)
    datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.timezone.utc)
    """
    shown_us = min(max(time_us, EVENT_TIME_MIN_US), EVENT_TIME_MAX_US)
    return _UNIX_EPOCH + timedelta(microseconds=shown_us)
