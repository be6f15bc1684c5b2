"""The state of one key as Python values: a value, a list or a map for each declared name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from lakestate.config import duration_us
from lakestate.tables.arrow.schema import arrow_type
from lakestate.tables.event_time import event_time_us


@dataclass(frozen=True)
class ValueState:
    """A value of a type of Spark SQL; `default` until it is set.

    >>> ValueState("bigint", default=0).column_type
    'bigint'
    """

    type: str
    default: Any = None

    def __post_init__(self) -> None:
        arrow_type(self.type)

    @property
    def column_type(self) -> str:
        """The type of the column that holds it."""
        return self.type

    def load(self, stored: Any) -> Any:
        """The value that the function sees."""
        if stored is not None:
            return stored
        # A function may change it in place, and another key has its own.
        return copy(self.default) if isinstance(self.default, (list, dict)) else self.default

    def store(self, value: Any) -> Any:
        """The value as it is stored: none if it is the default."""
        return None if value == self.default else value


@dataclass(frozen=True)
class ListState:
    """A list of values of one type, empty at first. It is stored as a whole whenever it changes."""

    type: str

    def __post_init__(self) -> None:
        arrow_type(self.column_type)

    @property
    def column_type(self) -> str:
        """The type of the column that holds it."""
        return f"array<{self.type}>"

    def load(self, stored: Any) -> list[Any]:
        """A list that the function may change."""
        return list(stored or ())

    def store(self, value: Iterable[Any]) -> list[Any] | None:
        """The list as it is stored: none if it is empty."""
        return list(value) or None


@dataclass(frozen=True)
class MapState:
    """A map from keys to values, empty at first. It is stored as a whole whenever it changes."""

    key: str
    value: str

    def __post_init__(self) -> None:
        arrow_type(self.column_type)

    @property
    def column_type(self) -> str:
        """The type of the column that holds it."""
        return f"map<{self.key},{self.value}>"

    def load(self, stored: Any) -> dict[Any, Any]:
        """A dict that the function may change."""
        return dict(stored or ())

    def store(self, value: dict[Any, Any]) -> list[tuple[Any, Any]] | None:
        """The map as it is stored: none if it is empty."""
        return list(value.items()) or None


State = ValueState | ListState | MapState


class KeyTimers:
    """The timers of the key that a function is called for."""

    __slots__ = ("_clock", "_set", "_unset")

    def __init__(
        self, clock: Callable[[], int], set_: Callable[[int], None], unset: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._set = set_
        self._unset = unset

    def at(self, time: datetime | int) -> None:
        """Call `on_timer` at this time. A time that has passed is due in this epoch."""
        self._set(event_time_us(time, "timestamp"))

    def after(self, duration: str | timedelta) -> None:
        """Call `on_timer` so long after now.

        In event time, now is the latest time among the rows, or that of the timer in `on_timer`; in
        processing time, it is when the epoch began.
        """
        self._set(self._clock() + duration_us(duration))

    def cancel(self) -> None:
        """Remove all timers of the key that have not fired."""
        self._unset()


class KeyState:
    """The state of the key that a function is called for: an attribute for each declared name.

    Attributes are read and assigned; lists and dicts may also be changed in place.
    """

    __slots__ = ("timers",)
    _declared: Mapping[str, State] = {}
    timers: KeyTimers

    def clear(self) -> None:
        """Forget the state of this key."""
        for name, state in self._declared.items():
            setattr(self, name, state.load(None))


def state_class(declared: Mapping[str, State]) -> type[KeyState]:
    """The class of states with these attributes, and no others."""
    return type("State", (KeyState,), {"__slots__": tuple(declared), "_declared": dict(declared)})
