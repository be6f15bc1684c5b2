"""`KeyedFunction`: what users subclass who think in one key at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.operators.keyed_function.state import KeyState, ListState, MapState, State, ValueState
from lakestate.operators.timers.table import TimerTime

Yielded: TypeAlias = "Iterable[Mapping[str, Any] | Sequence[Any]] | None"


class KeyedFunction:
    """Code that is called for one key at a time, with the state and the timers of that key.

    Attributes that are `ValueState`, `ListState` or `MapState` declare the state. `timers` is the time
    that its timers follow, "event" or "processing", if it sets any. Rows to yield are dicts, or
    tuples in the order of `output`.

    >>> import lakestate as ls
    >>> class Totals(ls.KeyedFunction):
    ...     output = "user string, total bigint"
    ...     total = ls.ValueState("bigint", default=0)
    ...
    ...     def process(self, key, rows, state):
    ...         state.total += sum(row.amount for row in rows)
    ...         yield key, state.total
    >>> from lakestate.operators.keyed_function import KeyedFunctionOperator
    >>> from lakestate.testing import OperatorHarness
    >>> harness = OperatorHarness(KeyedFunctionOperator(Totals(), key="user string"))
    >>> harness.epoch([{"user": "ann", "amount": 3}, {"user": "ann", "amount": 4}])
    [{'user': 'ann', 'total': 7}]
    >>> harness.epoch([{"user": "ann", "amount": 1}])
    [{'user': 'ann', 'total': 8}]
    """

    output: str | pa.Schema | None = None
    """The columns that it yields."""

    timers: str | None = None
    """The time that its timers follow: "event", "processing", or None if it sets none."""

    ttl: str | None = None
    """How long the state of a key lives after it was last changed, in processing time."""

    def process(self, key: Any, rows: Sequence[Any], state: KeyState) -> Yielded:
        """Process the rows of one key in one epoch, in order of event time.

        `key` is a value, or a tuple if there are several key columns. Rows are named tuples.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define process")

    def on_timer(self, key: Any, time: datetime, state: KeyState) -> Yielded:
        """Called when the time of a timer has come. Of one key, timers fire in order of time."""
        raise NotImplementedError(f"{type(self).__name__} does not define on_timer")


def declared_states(function: KeyedFunction) -> dict[str, State]:
    """The states that a function declares, by name."""
    found: dict[str, State] = {}
    for owner in reversed(type(function).__mro__):
        found |= {name: item for name, item in vars(owner).items() if isinstance(item, State)}
    reserved = [name for name in found if name in ("timers", "clear") or name.startswith("_")]
    if reserved:
        raise InvalidInputError(
            "a state has a name that is taken", object_name=type(function).__name__, found=", ".join(reserved)
        )
    return found


def timer_time(function: KeyedFunction) -> TimerTime | None:
    """The time that the function's timers follow."""
    sets_timers = type(function).on_timer is not KeyedFunction.on_timer
    if function.timers is None:
        if sets_timers:
            raise InvalidInputError(
                "a keyed function defines on_timer, and does not say which time its timers follow",
                object_name=type(function).__name__,
                action='write timers = "event" or timers = "processing" in the class',
            )
        return None
    if not sets_timers:
        raise InvalidInputError(
            "a keyed function has timers, and does not define on_timer",
            object_name=type(function).__name__,
            action="define on_timer(self, key, time, state)",
        )
    return TimerTime.of(function.timers)


__all__ = [
    "KeyedFunction",
    "ListState",
    "MapState",
    "ValueState",
    "declared_states",
    "timer_time",
]
