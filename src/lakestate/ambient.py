"""The clock and unique names, passed in so that a simulation can control both."""

from __future__ import annotations

import time
import uuid
from typing import Protocol


class Ambient(Protocol):
    """What a workflow needs from its surroundings besides a store."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        ...

    def new_id(self) -> str:
        """A name that is never handed out twice."""
        ...


class SystemAmbient:
    """The system clock and random names.

    >>> ambient = SystemAmbient()
    >>> len(ambient.new_id()), ambient.new_id() != ambient.new_id()
    (20, True)
    """

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def new_id(self) -> str:
        """80 random bits in hexadecimal: short enough for file names, and unique in practice."""
        return uuid.uuid4().hex[:20]
