"""Time and unique names, passed in from outside so that a simulation can decide both."""

from __future__ import annotations

import time
import uuid
from typing import Protocol


class Ambient(Protocol):
    """What a workflow may ask of the world besides its store."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        ...

    def new_id(self) -> str:
        """A name that nobody else will ever be given."""
        ...


class SystemAmbient:
    """The machine's clock, and random names.

    >>> ambient = SystemAmbient()
    >>> len(ambient.new_id()), ambient.new_id() != ambient.new_id()
    (20, True)
    """

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def new_id(self) -> str:
        """80 random bits in hexadecimal: short enough for file names, unique enough for ever."""
        return uuid.uuid4().hex[:20]
