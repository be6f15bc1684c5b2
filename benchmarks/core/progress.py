"""The progress bar of a run of several benchmarks, with an estimate of what is left.

The estimate is made of how long each benchmark took the last time. Without a terminal, one line is printed
for each benchmark.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

REFRESH_S = 0.5


@dataclass
class Estimate:
    """How much of a run is done, by the seconds that its parts are expected to take."""

    expected: dict[str, float]
    spent: dict[str, float] = field(default_factory=dict)
    """Of the benchmarks that have ended."""

    def done_share(self, current: str | None, seconds: float) -> float:
        """The share of the whole, while one runs for so many seconds."""
        done = sum(self.expected[name] for name in self.spent)
        if current is not None:
            # One that takes longer than expected is almost done for as long as it takes.
            done += min(seconds, 0.97 * self.expected[current])
        return done / max(sum(self.expected.values()), 1e-9)

    def seconds_left(self, current: str | None, seconds: float) -> float:
        """What is left, if the others take as long as the last time."""
        waiting = [name for name in self.expected if name not in self.spent and name != current]
        left = sum(self.expected[name] for name in waiting)
        return left + (max(self.expected[current] - seconds, 0) if current is not None else 0)


def shown_left(seconds: float) -> str:
    """About how long something still takes.

    >>> shown_left(20), shown_left(100), shown_left(1500)
    ('less than a minute left', 'about 2 min left', 'about 25 min left')
    """
    return "less than a minute left" if seconds < 60 else f"about {seconds / 60:.0f} min left"


class ProgressBar:
    """Shows which benchmark runs, what it does, and what is left."""

    def __init__(self, estimate: Estimate, console: Console) -> None:
        self._estimate = estimate
        self._console = console
        self._current: str | None = None
        self._step = ""
        self._started = time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"))
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=1.0, left="")
        self._ended = threading.Event()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the bar until the end of the block."""
        with self._bar:
            thread = threading.Thread(target=self._refresh, daemon=True)
            thread.start()
            try:
                yield
            finally:
                self._ended.set()
                thread.join()

    def begin(self, name: str) -> None:
        """A benchmark begins."""
        self._current, self._step, self._started = name, "", time.monotonic()
        if not self._console.is_terminal:
            left = shown_left(self._estimate.seconds_left(name, 0))
            self._console.print(f"{name} … ({left})", highlight=False)

    def step(self, text: str) -> None:
        """The benchmark says what it does."""
        self._step = text

    def end(self, verdict: str) -> None:
        """The benchmark has ended; say how."""
        seconds = time.monotonic() - self._started
        if self._current is not None:
            self._estimate.spent[self._current] = seconds
            self._bar.console.print(f"{self._current}: {verdict}, {seconds:.0f} s", highlight=False)
        self._current = None

    def _refresh(self) -> None:
        while not self._ended.wait(REFRESH_S):
            seconds = time.monotonic() - self._started
            self._bar.update(
                self._task,
                completed=self._estimate.done_share(self._current, seconds),
                description=f"{self._current or ''} {self._step}"[:70],
                left=shown_left(self._estimate.seconds_left(self._current, seconds)),
            )
