"""A clock and names for tests that must be deterministic."""

from __future__ import annotations

from itertools import count


class SteppingAmbient:
    """A clock that advances by one millisecond at each reading, and numbered names.

    Give two of them in one test different names, as two drivers have.

    >>> ambient = SteppingAmbient("a")
    >>> ambient.new_id(), ambient.new_id(), ambient.now_ms(), ambient.now_ms()
    ('a-1', 'a-2', 1700000000000, 1700000000001)
    """

    def __init__(self, name: str, start_ms: int = 1_700_000_000_000) -> None:
        self._name = name
        self._ids = count(1)
        self._times = count(start_ms)

    def now_ms(self) -> int:
        """The next millisecond."""
        return next(self._times)

    def new_id(self) -> str:
        """The next name."""
        return f"{self._name}-{next(self._ids)}"
