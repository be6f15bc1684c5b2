"""What a view has written since the last checkpoint.

As long as nobody reads, writes go into one small dict after another, which takes half of the time of one
large dict. The first read makes one dict of them. So do keys that repeat across them: their old values,
which nobody can see any more, would take memory.
"""

from __future__ import annotations

import sys
from itertools import chain
from typing import Any

PART_ENTRIES = 1024
PARTS_GROWTH = 4
"""Parts are checked for repeated keys whenever there are so many times as many: together they hold little
more than this many times the entries of one dict."""


class WriteLog:
    """Keys and values, the last value of a key counting.

    `current[key] = value` is a write; call `set_aside` when there are more than `current_max`.

    >>> log = WriteLog()
    >>> log.current["a"] = 1
    >>> log.set_aside()
    >>> log.current["a"] = 2
    >>> log.entries
    {'a': 2}
    """

    __slots__ = ("_check_at", "_parts", "current", "current_max")

    def __init__(self) -> None:
        self.current: dict[Any, Any] = {}
        self.current_max = PART_ENTRIES
        self._parts: list[dict[Any, Any]] = []
        """Earlier writes, oldest first."""
        self._check_at = PARTS_GROWTH

    def set_aside(self) -> None:
        """Continue in a new dict."""
        self._parts.append(self.current)
        self.current = {}
        if len(self._parts) < self._check_at:
            return
        self._check_at *= PARTS_GROWTH
        if 16 * len(set().union(*self._parts)) < 15 * sum(map(len, self._parts)):
            _ = self.entries

    @property
    def is_in_parts(self) -> bool:
        """Whether a key may have several values."""
        return bool(self._parts)

    @property
    def entries(self) -> dict[Any, Any]:
        """All entries, each key once. It can be changed."""
        if self._parts:
            whole = self._parts[0]
            for part in (*self._parts[1:], self.current):
                whole.update(part)
            self.current, self._parts = whole, []
        self.current_max = sys.maxsize
        return self.current

    def columns(self) -> tuple[list[Any], list[Any]]:
        """Keys and values, in the order they were written. A key may be there more than once."""
        parts = [*self._parts, self.current]
        return list(chain.from_iterable(parts)), list(chain.from_iterable(part.values() for part in parts))

    def __bool__(self) -> bool:
        return bool(self.current or self._parts)
