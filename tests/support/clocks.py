"""Hosts whose clocks differ."""

from __future__ import annotations

from lakestate.ambient import SystemAmbient


class StandingClock(SystemAmbient):
    """A host whose clock stands at so many minutes."""

    def __init__(self, minutes: int) -> None:
        self._now_ms = minutes * 60_000

    def now_ms(self) -> int:
        return self._now_ms
