"""`OperatorJob`: a user's operator, rows and oracles, as a job that the simulator runs."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from lakestate.config import duration_us
from lakestate.errors import InvalidInputError
from lakestate.operators.operator import Operator, TwoInputOperator, has_on_commit, state_tables
from lakestate.testing.operator_harness import keyed_config, table_of, with_key_types
from lakestate.testing.simulation.job import SimulatedJob
from lakestate.testing.simulation.seen import Left, Right, Row, Seen

StateOracle = Callable[[Seen], Mapping[str, Sequence[Row]]]
OutputOracle = Callable[[Seen], Sequence[Row]]
_JSON = msgspec.json.Encoder(decimal_format="number")
_SIDES: Mapping[str, type[Row]] = {"left": Left, "right": Right}


@dataclass(frozen=True)
class Target:
    """Where an operator with `on_commit` writes, as a test sees it.

    `clear` empties it before each history, `read` returns its rows, and `expected(seen)` what they must be
    after these epochs. Each call of `on_commit` may fail, come twice, or come late.
    """

    clear: Callable[[], object]
    read: Callable[[], Sequence[Row]]
    expected: OutputOracle


class OperatorJob(SimulatedJob):
    """A user's operator, as the simulator runs it."""

    def __init__(
        self,
        make: Callable[[], Operator],
        rows: Sequence[Row],
        *,
        key: Sequence[str] | str | None = None,
        state: StateOracle | None = None,
        output: OutputOracle | None = None,
        ignored: Collection[str] | str = (),
        event_time: Sequence[str] | str | None = None,
        delay: str = "0 seconds",
        target: Target | None = None,
    ) -> None:
        operator = _make_operator(make)
        _check_target(operator, target)
        key = _names(key) if key else _key_of(operator)
        times = _names(event_time or ())
        schemas = _schemas(operator, rows, key, times)
        super().__init__(rows, key, next(iter(schemas.values())))
        self._schemas = schemas
        self._times = dict(zip(schemas, times * len(schemas), strict=False))
        self._make = make
        self._state = state
        self._output = output
        self._target = target
        self._tables = frozenset(operator.tables())
        self.ignored = frozenset(_names(ignored))
        self.event_time = times[0] if times else None
        self.delay_us = duration_us(delay)
        # Refuses invalid times here rather than in the middle of a history.
        self.source_watermark_us(len(self.rows))
        self._check_comparable(operator)

    def first(self, count: int) -> OperatorJob:
        """The same job with only the first `count` rows, and the schema of all."""
        cut = copy.copy(self)
        cut.rows = self.rows[:count]
        return cut

    def operator(self, attempt: str, version: int) -> Operator:
        """A new operator. Users' jobs are not upgraded."""
        return self.call_user_code(self._make)

    def time_of(self, row: Row) -> Any:
        """The event time of a row, in the column that its input has it in."""
        return row[self._times[_input_of(row)]]

    def inputs(self, rows: Sequence[Row]) -> Mapping[str, pa.Table]:
        """Rows as Arrow, by the name of the input that takes them."""
        return {
            name: pa.Table.from_pylist([dict(row) for row in rows if _input_of(row) == name], schema=schema)
            for name, schema in self._schemas.items()
        }

    def state(self, seen: Seen) -> Mapping[str, Sequence[Row]] | None:
        """What the user's oracle returns."""
        return None if self._state is None else self.call_user_code(self._tables_of, self._state, seen)

    def output(self, seen: Seen) -> Sequence[Row] | None:
        """What the user's oracle returns."""
        return None if self._output is None else self.call_user_code(self._output_of, self._output, seen)

    def committed(self, seen: Seen) -> Sequence[Row] | None:
        """What the user's oracle returns for the target."""
        if self._target is None:
            return None
        return self.call_user_code(self._committed_rows, self._target.expected, seen)

    def target(self) -> Sequence[Row]:
        """The rows of the user's target."""
        return () if self._target is None else self.call_user_code(self._committed_rows, self._target.read)

    def clear_target(self) -> None:
        """Empty the user's target before a history."""
        if self._target is not None:
            self._target.clear()

    def _committed_rows(self, rows_of: Callable[..., Sequence[Row]], *arguments: Seen) -> list[Row]:
        return self._require_rows("target", rows_of(*arguments))

    def _tables_of(self, oracle: StateOracle, seen: Seen) -> dict[str, list[Row]]:
        tables = oracle(seen)
        if not isinstance(tables, Mapping) or set(tables) != self._tables:
            raise InvalidInputError(
                "the state oracle must return exactly the tables of the operator",
                found=", ".join(map(str, tables)) if isinstance(tables, Mapping) and tables else repr(tables),
                expected=", ".join(sorted(self._tables)),
            )
        return {name: self._require_rows(f"table {name}", found) for name, found in tables.items()}

    def _output_of(self, oracle: OutputOracle, seen: Seen) -> list[Row]:
        return _as_json(self._require_rows("output", oracle(seen)))

    def _require_rows(self, what: str, rows: Iterable[Row]) -> list[Row]:
        """The rows that an oracle returned, if they can be compared."""
        listed = list(rows) if isinstance(rows, Iterable) else [rows]
        for row in listed:
            if not isinstance(row, Mapping):
                raise InvalidInputError(
                    "an oracle must return rows", object_name=what, found=repr(row), expected="dicts"
                )
        Counter(self.comparable(listed))
        return listed

    def _check_comparable(self, operator: Operator) -> None:
        """Refuse a test that would compare nothing and always pass."""
        if self._state is not None and not self._tables:
            raise InvalidInputError("a state oracle for an operator without tables")
        if self._output is not None and not operator.output_columns:
            raise InvalidInputError("an output oracle for an operator that declares no output")
        configs = [table.config for table in state_tables(operator)]
        declared = [column for config in configs for column in (*config.key_columns, *config.value_columns)]
        known = {column.name for column in (*declared, *operator.output_columns)}.union(*self.rows)
        unknown = self.ignored - known
        if unknown:
            raise InvalidInputError(
                "unknown columns to ignore",
                found=", ".join(sorted(unknown)),
                expected=f"some of {', '.join(sorted(known))}",
            )


def _names(given: Collection[str] | str) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _make_operator(make: Callable[[], Operator]) -> Operator:
    """An operator that the simulator can run."""
    operator = make() if callable(make) else None
    if not isinstance(operator, Operator):
        raise InvalidInputError(
            "every attempt needs an operator of its own",
            found=repr(make) if operator is None else f"a function that makes {operator!r}",
            action="pass the class or a function that makes it",
        )
    return operator


def _check_target(operator: Operator, target: Target | None) -> None:
    name = type(operator).__name__
    if has_on_commit(operator, name) and target is None:
        raise InvalidInputError(
            "an operator with on_commit needs a target that each history finds empty",
            object_name=name,
            expected="target=Target(clear, read, expected)",
        )
    if target is not None and not has_on_commit(operator, name):
        raise InvalidInputError("a target for an operator without on_commit", object_name=name)


def _input_of(row: Row) -> str:
    return next((name for name, side in _SIDES.items() if isinstance(row, side)), "")


def _schemas(
    operator: Operator, rows: Sequence[Row], key: Sequence[str], times: Sequence[str]
) -> dict[str, pa.Schema]:
    """The schema of the rows of each input."""
    _check_inputs(operator, rows)
    names = operator.input_names
    if len(times) not in (0, 1, len(names)):
        raise InvalidInputError(
            "more columns with the event time than inputs",
            found=", ".join(times),
            expected='one name, or those of the left and the right input: ("ts", "at")',
        )
    found = {}
    for number, name in enumerate(names):
        own = [row for row in rows if _input_of(row) == name]
        _check_rows(own, [*key, *(times[number:][:1] or times)], name)
        found[name] = with_key_types(table_of([dict(row) for row in own]), operator, key).schema
    return found


def _check_inputs(operator: Operator, rows: Sequence[Row]) -> None:
    """Refuse rows of which nobody knows who takes them."""
    for row in rows:
        if _input_of(row) not in operator.input_names:
            is_sided = isinstance(operator, TwoInputOperator)
            raise InvalidInputError(
                "a row of no input of the operator",
                object_name=type(operator).__name__,
                found=f"{type(row).__name__} {dict(row)}",
                expected="Left(…) or Right(…) of lakestate.testing.plugin" if is_sided else "a dict",
            )


def _check_rows(rows: Sequence[Row], columns: Sequence[str], input_name: str) -> None:
    if not rows:
        raise InvalidInputError(
            "no rows to run the operator with", expected=f"some {input_name} rows of its source"
        )
    for row in rows:
        missing = [name for name in columns if name not in row]
        if missing:
            raise InvalidInputError(
                "a row lacks a column that the job needs", found=row, expected=", ".join(missing)
            )


def _as_json(rows: Sequence[Row]) -> list[Row]:
    """Rows as they are read back from a file of JSON lines."""
    try:
        found: list[Row] = json.loads(_JSON.encode([dict(row) for row in rows]))
    except TypeError as cause:
        raise InvalidInputError(
            "an oracle returned a value that no output has", object_name="output", found=str(cause)
        ) from cause
    return found


def _key_of(operator: Operator) -> Sequence[str]:
    config = keyed_config(operator)
    if config is None:
        raise InvalidInputError("no table determines what rows are routed by", expected="key=[…]")
    return config.routing_columns
