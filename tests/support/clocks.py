"""Hosts whose clocks differ."""

from __future__ import annotations

from lakestate.ambient import SystemAmbient


class StandingClock(SystemAmbient):
    """A host whose clock stands at so many minutes."""

    def __init__(self, minutes: int) -> None:
        self._now_ms = minutes * 60_000

    def now_ms(self) -> int:
        return self._now_ms


class SetClock(SystemAmbient):
    """A host whose clock is set by the test, in milliseconds."""

    def __init__(self, now: int) -> None:
        self.now = now

    def now_ms(self) -> int:
        return self.now
