"""The time of a job: that of its drivers' clocks, which differ, go back, and are sometimes wrong.

Time never goes back from one epoch to the next, or rows that have expired would come back. So a clock that
is ahead for one epoch would stop time for as long. How far ahead stored time may be is bounded, and it
goes back only if somebody asks for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from lakestate.ambient import Ambient, SystemAmbient
from lakestate.errors import ClockError
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.watermarks import instant

CLOCK_TOLERANCE_MS = 3_600_000
"""An hour. Clocks that are kept in step differ by milliseconds, clocks that nobody keeps by minutes; one that
is off by more is wrong. Rows live, and files stay open, at most this much longer than they should."""

GAP_MAX_MS = 366 * 86_400_000
"""If a job was not run for so long, somebody is asked: more likely the clock is wrong, and all rows with a
time to live would be lost."""

NOTICED_MS = 1_000

_log = logging.getLogger("lakestate.epochs")


@dataclass(frozen=True, slots=True)
class EpochTime:
    """The time of one epoch."""

    now_ms: int
    expired_at_us: int | None = None
    """If time goes back: rows that had expired by this time stay so."""


class JobClock:
    """The clock of one driver."""

    def __init__(
        self,
        ambient: Ambient,
        tolerance_ms: int | None = CLOCK_TOLERANCE_MS,
        uptime_ms: Callable[[], int] | None = None,
    ) -> None:
        self._ambient = ambient
        # A clock that a test or a simulation sets has no other that it could be compared with.
        self._uptime_ms = uptime_ms or (_uptime_ms if type(ambient) is SystemAmbient else ambient.now_ms)
        self._tolerance_ms = tolerance_ms
        self._is_behind = False
        self._baseline_ms = self._difference_ms()

    def now_ms(self) -> int:
        """The time. Raises ClockError if the clock has jumped ahead since it was read last."""
        jump_ms = self._difference_ms() - self._baseline_ms
        if self._tolerance_ms is not None and jump_ms > self._tolerance_ms:
            raise ClockError(
                "the clock of this driver has jumped ahead",
                found=f"{_text(self._ambient.now_ms())}, {timedelta(milliseconds=jump_ms)} too late",
                expected=f"at most {timedelta(milliseconds=self._tolerance_ms)}",
                action="nothing was published; correct the clock, or, if it is right because the host was "
                "paused, start the job again",
            )
        self._baseline_ms += jump_ms
        return self._ambient.now_ms()

    def epoch_time(self, newest: Manifest | None, *, reset: bool) -> EpochTime:
        """The time of the epoch after the newest. Raises ClockError if it cannot be that of the clock."""
        now_ms = self.now_ms()
        if newest is None:
            return EpochTime(now_ms)
        ahead_ms = newest.finished_ms - now_ms
        if reset and ahead_ms > 0:
            _log_reset(newest, now_ms)
            return EpochTime(now_ms, newest.finished_ms * 1000)
        if not reset:
            self.check(newest, now_ms)
            self._warn_once(newest, ahead_ms)
        return EpochTime(max(now_ms, newest.finished_ms))

    def check(self, newest: Manifest | None, now_ms: int | None = None) -> None:
        """Raise ClockError if the clock is too far from the end of the newest epoch."""
        if newest is None or self._tolerance_ms is None:
            return
        now_ms = self.now_ms() if now_ms is None else now_ms
        ahead_ms = newest.finished_ms - now_ms
        if ahead_ms > self._tolerance_ms:
            raise _ahead_error(newest, now_ms, self._tolerance_ms)
        if -ahead_ms > GAP_MAX_MS:
            raise _gap_error(newest, now_ms)

    def _warn_once(self, newest: Manifest, ahead_ms: int) -> None:
        if ahead_ms <= NOTICED_MS:
            self._is_behind = False
        elif not self._is_behind:
            self._is_behind = True
            _log.warning(
                "job %s: the clock of this driver is %s behind the end of epoch %s; until it has caught up, "
                "no time to live passes",
                newest.job_id,
                timedelta(milliseconds=ahead_ms),
                newest.epoch,
            )

    def _difference_ms(self) -> int:
        """What the clock says, less the time since the host was started, which nobody can set."""
        return self._ambient.now_ms() - self._uptime_ms()


def _uptime_ms() -> int:
    """Unlike the monotonic clock, it continues while a host is suspended."""
    return time.clock_gettime_ns(_UPTIME) // 1_000_000


_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _log_reset(newest: Manifest, now_ms: int) -> None:
    """Say what happens to rows when time goes back."""
    _log.warning(
        "job %s: its time goes back from %s to %s; rows with a time to live that had expired are removed for "
        "good, and that of all others begins anew",
        newest.job_id,
        _text(newest.finished_ms),
        _text(now_ms),
    )


def _ahead_error(newest: Manifest, now_ms: int, tolerance_ms: int) -> ClockError:
    return ClockError(
        "the time of this job is ahead of the clock of this driver",
        object_name=f"epoch {newest.epoch} of job {newest.job_id}",
        found=f"{_text(newest.finished_ms)}, while the clock says {_text(now_ms)}",
        expected=f"at most {timedelta(milliseconds=tolerance_ms)} ahead",
        action="correct this clock; if it is right, that of an earlier driver was ahead: start with "
        "reset_clock=True, which removes rows that have expired since, and lets the time to live of all "
        "others begin anew",
    )


def _gap_error(newest: Manifest, now_ms: int) -> ClockError:
    return ClockError(
        "the clock of this driver is far ahead of the newest epoch: rows with a time to live would expire",
        object_name=f"epoch {newest.epoch} of job {newest.job_id}",
        found=f"{_text(newest.finished_ms)}, while the clock says {_text(now_ms)}",
        expected=f"at most {timedelta(milliseconds=GAP_MAX_MS).days} days",
        action="correct this clock; if it is right, and the job was not run for so long, start with "
        "reset_clock=True",
    )


def _text(time_ms: int) -> str:
    return f"{instant(time_ms * 1000):%Y-%m-%d %H:%M:%S} UTC"
