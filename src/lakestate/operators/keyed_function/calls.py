"""`KeyedCalls`: the calls of a keyed function in one epoch, and the states that they leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.operators.context import OperatorContext
from lakestate.operators.keyed_function.function import KeyedFunction
from lakestate.operators.keyed_function.rows import KeyGroups, python_keys, python_values
from lakestate.operators.keyed_function.state import KeyState, KeyTimers, State, state_class
from lakestate.operators.timers.table import TimerTime
from lakestate.operators.timers.view import AT
from lakestate.protocol.watermarks import instant
from lakestate.tables.arrow.schema import arrow_type


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
        self._declared = states
        self._ctx = ctx
        self._time = time
        self._output = output
        self._class = state_class(states)
        self._loaded: dict[Any, tuple[KeyState, tuple[Any, ...]]] = {}
        """The state of each key, and what is stored of it."""
        self._keys: list[pa.Table] = []
        self._order: list[Any] = []
        self._now_us: int | None = None
        self._current: Any = None
        self._new_timers: dict[int, list[int]] = {}
        self._cancelled: set[int] = set()
        self._places: dict[Any, int] = {}

    def process(self, groups: KeyGroups) -> Iterator[Any]:
        """Call `process` for each key."""
        keys = self._load(groups.keys)
        for number, rows in groups:
            key = keys[number]
            self._point(key, groups.latest_us[number])
            yield from self._function.process(key, rows, self._loaded[key][0]) or ()
        self._set_timers()

    def fire(self, timers: pa.Table) -> Iterator[Any]:
        """Call `on_timer` for each timer."""
        keys = self._load(timers.select(self._key))
        for key, time_us in zip(keys, timers[AT].cast(pa.int64()).to_pylist(), strict=True):
            if self._places[key] in self._cancelled:
                continue
            self._point(key, time_us)
            yield from self._function.on_timer(key, instant(time_us), self._loaded[key][0]) or ()
        self._set_timers()

    def write_states(self) -> None:
        """Write the states that changed, and remove those that are as at first."""
        if not self._declared:
            return
        changed, emptied, columns = [], [], [[] for _ in self._declared]  # type: ignore[var-annotated]
        for key in self._order:
            state, stored = self._loaded[key]
            now = self._stored_values(state)
            if now == stored:
                continue
            if all(value is None for value in now):
                emptied.append(self._places[key])
            else:
                changed.append(self._places[key])
                for column, value in zip(columns, now, strict=True):
                    column.append(value)
        if not changed and not emptied:
            return
        keys = pa.concat_tables(self._keys)
        view = self._ctx.view("state")
        if emptied:
            view.delete(keys.take(pa.array(emptied)))
        if changed:
            fields = {name: state.column_type for name, state in self._declared.items()}
            view.put(self._with_values(keys.take(pa.array(changed)), fields, columns))

    def yielded(self, rows: Iterator[Any]) -> Iterator[pa.Table]:
        """What the function yields as a table."""
        found = list(rows)
        if not found:
            return
        if self._output is None:
            raise InvalidInputError(
                "a keyed function without output yielded rows",
                object_name=type(self._function).__name__,
                action="declare `output`",
            )
        names = self._output.names
        tuples = [self._as_tuple(row, names) for row in found]
        columns = [
            pa.array(values, field.type)
            for values, field in zip(zip(*tuples, strict=True), self._output, strict=True)
        ]
        yield pa.Table.from_arrays(columns, schema=self._output)

    def _point(self, key: Any, now_us: int | None) -> None:
        self._current = key
        self._now_us = now_us

    def _as_tuple(self, row: Any, names: Sequence[str]) -> tuple[Any, ...]:
        if isinstance(row, Mapping):
            unknown = [name for name in row if name not in names]
            if unknown:
                raise InvalidInputError(
                    "a keyed function yielded columns that its output does not have",
                    object_name=type(self._function).__name__,
                    found=", ".join(unknown),
                    expected=", ".join(names),
                )
            return tuple(row.get(name) for name in names)
        if not isinstance(row, tuple | list) or len(row) != len(names):
            raise InvalidInputError(
                "a keyed function yielded what is not a row of its output",
                object_name=type(self._function).__name__,
                found=repr(row)[:200],
                expected=f"a dict, or a tuple of {', '.join(names)}",
            )
        return tuple(row)

    def _load(self, keys: pa.Table) -> list[Any]:
        """Load the states of keys that are not loaded yet. Returns the keys as Python values."""
        found = python_keys(keys)
        new = {key: number for number, key in enumerate(found) if key not in self._loaded}
        if new:
            missing = keys.take(pa.array(list(new.values())))
            start = len(self._order)
            self._keys.append(missing)
            self._order += new
            self._places |= {key: start + number for number, key in enumerate(new)}
            for key, values in zip(new, self._stored_rows(missing), strict=True):
                self._loaded[key] = (self._state(values), values)
        return found

    def _stored_rows(self, keys: pa.Table) -> list[tuple[Any, ...]]:
        if not self._declared:
            return [()] * keys.num_rows
        stored = self._ctx.view("state").get(keys)
        columns = [python_values(stored.column(name)) for name in self._declared]
        return list(zip(*columns, strict=True))

    def _state(self, values: tuple[Any, ...]) -> KeyState:
        state = self._class()
        for (name, declared), value in zip(self._declared.items(), values, strict=True):
            setattr(state, name, declared.load(value))
        if self._time is not None:
            state.timers = self._timers
        return state

    def _stored_values(self, state: KeyState) -> tuple[Any, ...]:
        return tuple(declared.store(getattr(state, name)) for name, declared in self._declared.items())

    @property
    def _timers(self) -> KeyTimers:
        return KeyTimers(self._clock, self._add_timer, self._cancel_timers)

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
        self._new_timers.setdefault(self._places[self._current], []).append(time_us)

    def _cancel_timers(self) -> None:
        place = self._places[self._current]
        self._new_timers.pop(place, None)
        self._cancelled.add(place)

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

    def _with_values(
        self, keys: pa.Table, types: Mapping[str, str], columns: Sequence[Sequence[Any]]
    ) -> pa.Table:
        for (name, type_), values in zip(types.items(), columns, strict=True):
            keys = keys.append_column(name, pa.array(values, arrow_type(type_)))
        return keys
