"""`LoadedStates`: the states of the keys of an epoch, a list of Python values for each declared name.

A function is given the state of one key at a time, as an object that lives as long as its call: a hundred
thousand of them that live longer are visited by Python's garbage collector again and again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress
from operator import ne
from typing import Any

import numpy as np
import pyarrow as pa

from lakestate.operators.context import OperatorContext
from lakestate.operators.keyed_function.rows import python_values
from lakestate.operators.keyed_function.state import KeyState, KeyTimers, State, state_class
from lakestate.tables.arrow.schema import arrow_type


@dataclass(frozen=True)
class ChangedStates:
    """The states that differ from what is stored."""

    is_changed: np.ndarray
    """Which keys have another state than before."""
    is_emptied: np.ndarray
    """Which keys had a state, and are as at first now."""
    columns: Mapping[str, pa.Array]
    """The new states, of the keys with another one."""


class LoadedStates:
    """The states of keys, each at the place at which it was loaded."""

    def __init__(self, declared: Mapping[str, State], timers: KeyTimers | None) -> None:
        self._declared = declared
        self._class = state_class(declared)
        self._timers = timers
        self._stored: dict[str, list[Any]] = {name: [] for name in declared}
        self._now: dict[str, list[Any]] = {name: [] for name in declared}
        self._columns = list(self._now.items())

    def load(self, keys: pa.Table, ctx: OperatorContext) -> None:
        """Look up the states of further keys."""
        if not self._declared:
            return
        found = ctx.view("state").get(keys)
        for name, state in self._declared.items():
            column = found.column(name)
            self._stored[name] += python_values(column)
            # A function may change a list or a dict in place: what was stored is another one.
            self._now[name] += map(state.load, python_values(column))

    def at(self, place: int) -> KeyState:
        """The state of one key."""
        state = self._class()
        for name, values in self._columns:
            setattr(state, name, values[place])
        if self._timers is not None:
            state.timers = self._timers
        return state

    def keep(self, place: int, state: KeyState) -> None:
        """Take over what a function has left in the state of a key."""
        for name, values in self._columns:
            values[place] = getattr(state, name)

    def changes(self) -> ChangedStates | None:
        """What is to be stored, or None if nothing changed."""
        now = {name: list(map(state.store, self._now[name])) for name, state in self._declared.items()}
        differs = np.fromiter(
            map(ne, zip(*now.values(), strict=True), zip(*self._stored.values(), strict=True)), dtype=bool
        )
        if not differs.any():
            return None
        is_set = np.zeros(len(differs), dtype=bool)
        for values in now.values():
            is_set |= np.fromiter((value is not None for value in values), dtype=bool, count=len(values))
        is_changed = differs & is_set
        return ChangedStates(
            is_changed,
            differs & ~is_set,
            {
                name: pa.array(
                    list(compress(values, is_changed)), arrow_type(self._declared[name].column_type)
                )
                for name, values in now.items()
            },
        )
