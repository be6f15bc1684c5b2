"""`WindowGrid`: windows of one size at regular times, and the panes that they are made of. Pure.

A pane is the longest span of time that no window divides. Rows are aggregated by pane once, and a pane counts
in every window that contains it. Times are microseconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np


@dataclass(frozen=True, slots=True)
class WindowRange:
    """The windows that begin at `first_us` or later and before `before_us`; None leaves a side open."""

    first_us: int | None
    before_us: int | None

    @property
    def is_empty(self) -> bool:
        """Whether there is no time in it at all."""
        return self.first_us is not None and self.before_us is not None and self.first_us >= self.before_us

    def contains(self, starts: np.ndarray) -> np.ndarray:
        """Which windows with these starts are in it."""
        inside = np.ones(len(starts), dtype=bool)
        if self.first_us is not None:
            inside &= starts >= self.first_us
        if self.before_us is not None:
            inside &= starts < self.before_us
        return inside


@dataclass(frozen=True, slots=True)
class WindowGrid:
    """Windows from k × hop to k × hop + size, for every integer k.

    >>> grid = WindowGrid(size_us=10, hop_us=4)
    >>> grid.pane_us, grid.panes(np.array([-1, 0, 7]))
    (2, array([-2,  0,  6]))
    >>> [each.tolist() for each in grid.windows_of(np.array([8, 2]))]
    [[0, 1, 0, 1, 0], [8, 0, 4, -4, 0]]
    """

    size_us: int
    hop_us: int

    @property
    def pane_us(self) -> int:
        """The length of a pane."""
        return gcd(self.size_us, self.hop_us)

    @property
    def is_tumbling(self) -> bool:
        """Whether every pane is a window."""
        return self.size_us == self.hop_us

    @property
    def windows_per_pane_max(self) -> int:
        """The number of windows that contain a pane, at most."""
        return -(-self.size_us // self.hop_us)

    def panes(self, times: np.ndarray) -> np.ndarray:
        """The starts of the panes of times."""
        panes: np.ndarray = times - np.mod(times, self.pane_us)
        return panes

    def pane_sql(self, time_us: str) -> str:
        """The start of the pane of a time, in SQL."""
        return _floor_sql(time_us, self.pane_us)

    def last_end(self, panes: np.ndarray) -> np.ndarray:
        """The end of the last window that contains a pane."""
        ends: np.ndarray = panes - np.mod(panes, self.hop_us) + self.size_us
        return ends

    def last_end_sql(self, time_us: str) -> str:
        """The end of the last window that contains a time, in SQL."""
        return f"({_floor_sql(time_us, self.hop_us)} + {self.size_us})"

    def windows_of(self, panes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Every pane, by its position, with the start of every window that contains it."""
        last = panes - np.mod(panes, self.hop_us)
        hops = np.arange(self.windows_per_pane_max) * self.hop_us
        starts = (last - hops[:, None]).ravel()
        places = np.tile(np.arange(len(panes)), len(hops))
        contains = starts + self.size_us > panes[places]
        return places[contains], starts[contains]

    def windows_sql(self, pane: str) -> str:
        """The starts of all windows that contain a pane, as an array in SQL."""
        last = _floor_sql(pane, self.hop_us)
        hops = f"(({self.size_us - 1} - ({pane} - {last})) DIV {self.hop_us})"
        return f"sequence({last} - {hops} * {self.hop_us}, {last}, {self.hop_us})"

    def closed_between(self, before_us: int | None, now_us: int | None) -> WindowRange:
        """The windows whose end is after `before_us`, and not after `now_us`; None leaves a side open.

        >>> WindowGrid(10, 4).closed_between(13, 21)
        WindowRange(first_us=4, before_us=12)
        """
        return WindowRange(
            None if before_us is None else self.first_open_us(before_us),
            None if now_us is None else self.first_open_us(now_us),
        )

    def first_open_us(self, now_us: int) -> int:
        """The start of the first window whose end is after this time."""
        latest = now_us - self.size_us
        return latest - latest % self.hop_us + self.hop_us

    def panes_between(self, windows: WindowRange) -> tuple[int | None, int | None]:
        """The first start of the panes in these windows, and the time before which all of them start."""
        before = None if windows.before_us is None else windows.before_us - self.hop_us + self.size_us
        return windows.first_us, before


def _floor_sql(time_us: str, step_us: int) -> str:
    return f"({time_us} - pmod({time_us}, {step_us}))"
