"""`KeyedCalls`: the calls of a keyed function in one epoch, and the states that they leave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.operators.context import OperatorContext
from lakestate.operators.keyed_function.function import KeyedFunction
from lakestate.operators.keyed_function.loaded import LoadedStates
from lakestate.operators.keyed_function.rows import KeyGroups, python_keys, row_columns
from lakestate.operators.keyed_function.state import KeyTimers, State
from lakestate.operators.timers.table import TimerTime
from lakestate.operators.timers.view import AT
from lakestate.protocol.watermarks import instant


class KeyedCalls:
    """Loads states in bulk, calls the function for each key, and collects what it yields and sets."""

    def __init__(
        self,
        function: KeyedFunction,
        key: Sequence[str],
        states: Mapping[str, State],
        ctx: OperatorContext,
        time: TimerTime | None,
        output: pa.Schema | None,
    ) -> None:
        self._function = function
        self._key = list(key)
        self._ctx = ctx
        self._time = time
        self._output = output
        timers = None if time is None else KeyTimers(self._clock, self._add_timer, self._cancel_timers)
        self._states = LoadedStates(states, timers)
        self._keys: list[pa.Table] = []
        self._places: dict[Any, int] = {}
        """The place of each key among those whose states are loaded."""
        self._current = 0
        self._now_us: int | None = None
        self._new_timers: dict[int, list[int]] = {}
        self._cancelled: set[int] = set()

    def process(self, groups: KeyGroups) -> Iterable[pa.Table]:
        """Call `process` for each key. Returns what it yields."""
        keys, places = self._load(groups.keys)
        states, process, yielded = self._states, self._function.process, []  # type: ignore[var-annotated]
        for key, place, rows, latest_us in zip(keys, places, groups, groups.latest_us, strict=True):
            self._current, self._now_us = place, latest_us
            state = states.at(place)
            yielded.extend(process(key, rows, state) or ())
            states.keep(place, state)
        self._set_timers()
        return self._table_of(yielded)

    def fire(self, timers: pa.Table) -> Iterable[pa.Table]:
        """Call `on_timer` for each timer. Returns what it yields."""
        keys, places = self._load(timers.select(self._key))
        states, on_timer, yielded = self._states, self._function.on_timer, []  # type: ignore[var-annotated]
        times = timers[AT].cast(pa.int64()).to_pylist()
        for key, place, time_us in zip(keys, places, times, strict=True):
            if place in self._cancelled:
                continue
            self._current, self._now_us = place, time_us
            state = states.at(place)
            yielded.extend(on_timer(key, instant(time_us), state) or ())
            states.keep(place, state)
        self._set_timers()
        return self._table_of(yielded)

    def write_states(self) -> None:
        """Write the states that changed, and remove those that are as at first."""
        changes = self._states.changes()
        if changes is None:
            return
        keys, view = pa.concat_tables(self._keys), self._ctx.view("state")
        if changes.is_emptied.any():
            view.delete(keys.filter(pa.array(changes.is_emptied)))
        if changes.is_changed.any():
            if not changes.is_changed.all():
                keys = keys.filter(pa.array(changes.is_changed))
            for name, values in changes.columns.items():
                keys = keys.append_column(name, values)
            view.put(keys)

    def _table_of(self, yielded: list[Any]) -> Iterable[pa.Table]:
        if not yielded:
            return ()
        if self._output is None:
            raise InvalidInputError(
                "a keyed function without output yielded rows",
                object_name=type(self._function).__name__,
                action="declare `output`",
            )
        columns = row_columns(yielded, self._output.names, type(self._function).__name__)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self._output, strict=True)]
        return (pa.Table.from_arrays(arrays, schema=self._output),)

    def _load(self, keys: pa.Table) -> tuple[list[Any], list[int]]:
        """Load the states of keys that are not loaded yet. Returns the keys as Python values, and places."""
        found, known = python_keys(keys), len(self._places)
        for key in found:
            self._places.setdefault(key, len(self._places))
        places = [self._places[key] for key in found]
        if len(self._places) > known:
            new = np.unique(np.array(places), return_index=True)[1][-(len(self._places) - known) :]
            missing = keys if len(new) == keys.num_rows else keys.take(pa.array(new))
            self._keys.append(missing)
            self._states.load(missing, self._ctx)
        return found, places

    def _clock(self) -> int:
        if self._time is TimerTime.PROCESSING:
            return self._ctx.processing_time_us
        if self._now_us is None:
            raise InvalidInputError(
                "after() counts from the latest event time of the rows, and none of them has one",
                object_name=type(self._function).__name__,
                action="use at(), or leave out rows without event time",
            )
        return self._now_us

    def _add_timer(self, time_us: int) -> None:
        self._new_timers.setdefault(self._current, []).append(time_us)

    def _cancel_timers(self) -> None:
        self._new_timers.pop(self._current, None)
        self._cancelled.add(self._current)

    def _set_timers(self) -> None:
        if not self._new_timers and not self._cancelled:
            return
        keys = pa.concat_tables(self._keys)
        view = self._ctx.view("timers")
        if self._cancelled:
            view.cancel(keys.take(pa.array(sorted(self._cancelled))))
        if self._new_timers:
            places = [place for place, times in self._new_timers.items() for _ in times]
            times = [time_us for found in self._new_timers.values() for time_us in found]
            column = pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
            view.set(keys.take(pa.array(places)).append_column(AT, column))
        self._new_timers, self._cancelled = {}, set()
