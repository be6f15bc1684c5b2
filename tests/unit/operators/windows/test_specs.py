"""Windows as values: what is refused, and the arithmetic of panes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import lakestate as ls
from lakestate.errors import InvalidInputError
from lakestate.operators.windows import WindowGrid
from lakestate.operators.windows.grid import WindowRange


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ls.Hopping("2 seconds", every="10 seconds"), "a hop is longer than its window"),
        (lambda: ls.Tumbling("0 seconds"), "the size of a tumbling window is too short"),
        (lambda: ls.Tumbling(timedelta(0)), "the size of a tumbling window is too short"),
        (lambda: ls.Tumbling(timedelta(seconds=-1)), "a duration cannot be negative"),
        (lambda: ls.Tumbling("-10 seconds"), "not a duration"),
        (
            lambda: ls.Tumbling("0.4 us"),
            "not a whole number of microseconds",
        ),
        (lambda: ls.Tumbling("1.6 us"), "not a whole number of microseconds"),
        (lambda: ls.Tumbling("10 parsecs"), "unknown unit of time"),
        (lambda: ls.Tumbling(10), "not a duration"),  # type: ignore[arg-type]
        (lambda: ls.Hopping("10 seconds", every="0 seconds"), "the hop of a window is too short"),
        (lambda: ls.Session("0 seconds"), "the gap of a session is too short"),
        (
            lambda: ls.Tumbling("10 seconds", time="wall"),
            "unknown time of a window; found 'wall'; expected 'event' or",
        ),
    ],
)
def test_a_window_that_makes_no_sense_is_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        build()


@pytest.mark.parametrize(("size", "hop"), [(10, 10), (10, 2), (10, 4), (9, 6), (7, 1), (1, 1)])
def test_a_pane_is_in_the_windows_that_contain_its_times(size: int, hop: int) -> None:
    grid = WindowGrid(size, hop)
    times = np.arange(-30, 30)
    places, starts = grid.windows_of(grid.panes(times))
    found = {(int(times[place]), int(start)) for place, start in zip(places, starts, strict=True)}
    windows = range(-60, 60)
    expected = {
        (time, start)
        for time in range(-30, 30)
        for start in windows
        if start % hop == 0 and start <= time < start + size
    }
    assert found == expected
    assert len(places) == len(found)
    last = {time: max(start for each, start in expected if each == time) + size for time in range(-30, 30)}
    assert grid.last_end(grid.panes(times)).tolist() == [last[time] for time in range(-30, 30)]


@pytest.mark.parametrize(("size", "hop"), [(10, 10), (10, 2), (10, 4)])
def test_every_window_closes_once_however_the_watermark_moves(size: int, hop: int) -> None:
    grid = WindowGrid(size, hop)
    starts = np.arange(-40 - 40 % hop, 80, hop)
    reached = [None, -17, -17, 0, 3, 10, 41, None]
    closed = [grid.closed_between(before, now) for before, now in pairwise(reached)]
    assert [closing.is_empty for closing in closed][1] is True
    assert sum(closing.contains(starts).astype(int) for closing in closed).tolist() == [1] * len(starts)
    assert grid.panes_between(WindowRange(20, 20 + hop)) == (20, 20 + size)
