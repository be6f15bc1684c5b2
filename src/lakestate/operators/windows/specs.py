"""`Tumbling`, `Hopping` and `Session`: how rows are divided into windows. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TypeAlias

from lakestate.config import duration_us
from lakestate.errors import InvalidInputError
from lakestate.operators.windows.grid import WindowGrid

Duration: TypeAlias = str | timedelta

_UNITS = (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000))


class WindowTime(Enum):
    """The time by which rows are divided."""

    EVENT = "event"
    """The event time of each row."""
    PROCESSING = "processing"
    """The time at which the epoch of a row began."""


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of one size, one after the other, counted from 1970.

    >>> Tumbling("10 seconds").grid
    WindowGrid(size_us=10000000, hop_us=10000000)

    With `time="processing"`, a row belongs to the window in which its epoch began.
    """

    size: Duration
    time: str = "event"

    def __post_init__(self) -> None:
        _check(self.size, "the size of a tumbling window")
        _check_time(self.time)

    @property
    def grid(self) -> WindowGrid:
        """The windows in microseconds."""
        size_us = duration_us(self.size)
        return WindowGrid(size_us, size_us)


@dataclass(frozen=True, slots=True)
class Hopping:
    """Windows of one size that begin at regular times, and so overlap.

    >>> Hopping("10 seconds", every="2 seconds").grid
    WindowGrid(size_us=10000000, hop_us=2000000)
    """

    size: Duration
    every: Duration
    time: str = "event"

    def __post_init__(self) -> None:
        size_us = _check(self.size, "the size of a hopping window")
        hop_us = _check(self.every, "the hop of a window")
        _check_time(self.time)
        if hop_us > size_us:
            raise InvalidInputError(
                "a hop is longer than its window, and rows between two windows would be lost",
                found=f"size {self.size}, every {self.every}",
                expected="every <= size",
                action="filter the rows first with where(…), if that is what you want",
            )

    @property
    def grid(self) -> WindowGrid:
        """The windows in microseconds."""
        return WindowGrid(duration_us(self.size), duration_us(self.every))


@dataclass(frozen=True, slots=True)
class Session:
    """Windows of rows of a key that follow each other in less than `gap`.

    >>> Session("10 seconds").gap_us
    10000000
    """

    gap: Duration

    def __post_init__(self) -> None:
        _check(self.gap, "the gap of a session")

    @property
    def gap_us(self) -> int:
        """The gap in microseconds."""
        return duration_us(self.gap)


Window: TypeAlias = Tumbling | Hopping | Session


def duration_name(us: int) -> str:
    """A duration as part of a name.

    >>> duration_name(10_000_000), duration_name(90_000_000), duration_name(1_500)
    ('10s', '90s', '1500us')
    """
    for unit, unit_us in _UNITS:
        if us % unit_us == 0 and us:
            return f"{us // unit_us}{unit}"
    return f"{us}us"


def window_name(window: Window, lateness_us: int) -> str:
    """A window as part of the names of its state tables.

    State of other windows is then another table, which is refused when the job starts: it cannot become that
    of these.

    >>> window_name(Hopping("10 seconds", every="2 seconds"), 0), window_name(Session("1 hour"), 60_000_000)
    ('10s_every_2s', '1h_late_1m')
    """
    match window:
        case Tumbling():
            name = duration_name(window.grid.size_us)
        case Hopping():
            name = f"{duration_name(window.grid.size_us)}_every_{duration_name(window.grid.hop_us)}"
        case Session():
            name = duration_name(window.gap_us)
    return f"{name}_late_{duration_name(lateness_us)}" if lateness_us else name


def _check(duration: Duration, what: str) -> int:
    us = duration_us(duration)
    if us < 1:
        raise InvalidInputError(
            f"{what} is too short", found=repr(duration), expected="1 microsecond or more"
        )
    return us


def _check_time(time: str) -> None:
    if time not in [each.value for each in WindowTime]:
        expected = " or ".join(repr(each.value) for each in WindowTime)
        raise InvalidInputError("unknown time of a window", found=repr(time), expected=expected)
