"""User-defined aggregates: a subclass of `Aggregate` that says what it keeps, as an operator sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakestate.errors import InvalidInputError, OperatorError
from lakestate.operators.aggregates.aggregate import Accumulator, BoundAggregate, Merge
from lakestate.tables.arrow.grouping import group_numbers
from lakestate.tables.arrow.schema import arrow_fields, arrow_type, columns_of, ddl_of

if TYPE_CHECKING:
    from lakestate.operators.aggregates.aggregate import Aggregate


def bind_user_defined(aggregate: Aggregate, where: str) -> BoundAggregate:
    """The aggregate of a class that declares `state` and `output`, and defines create, merge and result."""
    name = type(aggregate).__name__
    for attribute in ("state", "output"):
        if not isinstance(getattr(aggregate, attribute, None), str):
            raise InvalidInputError(
                f"an aggregate does not declare `{attribute}`",
                object_name=f"{name} of {where}",
                found=repr(getattr(aggregate, attribute, None)),
                expected='columns and types of Spark SQL, such as state = "n bigint, total double", '
                'output = "double"',
            )
    columns = columns_of(str(aggregate.state), what=f"state of {name}")
    output = ddl_of(arrow_type(str(aggregate.output)))
    return UserDefined(
        aggregate,
        tuple(Accumulator(column.name, column.type, Merge.OWN) for column in columns),
        output,
        name,
        pa.schema([field.with_nullable(True) for field in arrow_fields(columns)]),
    )


@dataclass(frozen=True)
class UserDefined(BoundAggregate):
    """Calls the user's methods with the states of rows that count, and checks what they return."""

    aggregate: Any
    accumulators: tuple[Accumulator, ...]
    output: str
    function: str
    schema: pa.Schema
    constant_arguments = (True,)

    @property
    def takes_back(self) -> bool:  # type: ignore[override]
        """If the class defines `negate`."""
        return hasattr(self.aggregate, "negate")

    def rows_that_count(self, arguments: Sequence[pa.Array]) -> pa.Array:
        """The last argument says so."""
        return arguments[-1]

    def create(self, arguments: Sequence[pa.Array]) -> list[pa.Array]:
        """The states of the rows that count; null for the others."""
        *columns, counts = arguments
        states = self._call("create", *(column.filter(counts) for column in columns))
        number = counts.true_count
        return _spread(self._table(states, "create", number), counts.to_numpy(zero_copy_only=False))

    def merge(self, columns: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        """One state for each group that has any."""
        states = pa.Table.from_arrays(list(columns), schema=self.schema)
        is_there = _is_there(states)
        groups = group_numbers(offsets)[is_there]
        found, numbers = np.unique(groups, return_inverse=True)
        has_state = np.zeros(len(offsets) - 1, dtype=bool)
        has_state[found] = True
        given = states.filter(pa.array(is_there))
        if given.num_rows == len(found):
            return _spread(given, has_state)
        merged = self._call("merge", given, pa.array(numbers))
        return _spread(self._table(merged, "merge", len(found)), has_state)

    def result(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The results of groups with a state; null for the others."""
        states = pa.Table.from_arrays(list(columns), schema=self.schema)
        is_there = _is_there(states)
        given = states.filter(pa.array(is_there))
        found = self._call("result", given)
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        if not isinstance(found, pa.Array) or len(found) != given.num_rows:
            raise self._error("result", _shown(found), f"an Arrow array of {given.num_rows} values")
        return _spread(pa.table({"result": self._cast(found, "result")}), is_there)[0]

    def negate(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """States that take back."""
        states = pa.Table.from_arrays(list(columns), schema=self.schema)
        is_there = _is_there(states)
        given = states.filter(pa.array(is_there))
        return _spread(self._table(self._call("negate", given), "negate", given.num_rows), is_there)

    def _call(self, method: str, *arguments: Any) -> Any:
        function = getattr(self.aggregate, method, None)
        if function is None:
            raise self._error(method, "no such method", f"a method {method}")
        return function(*arguments)

    def _table(self, found: Any, method: str, number: int) -> pa.Table:
        if isinstance(found, pa.RecordBatch):
            found = pa.Table.from_batches([found])
        if not isinstance(found, pa.Table) or found.num_rows != number:
            raise self._error(method, _shown(found), f"an Arrow table of {number} rows")
        missing = [name for name in self.schema.names if name not in found.column_names]
        if missing:
            raise self._error(
                method, f"columns {', '.join(found.column_names)}", f"columns {', '.join(self.schema.names)}"
            )
        try:
            table = found.select(self.schema.names).cast(self.schema)
        except (pa.ArrowException, ValueError) as cause:
            raise self._error(method, str(cause), str(self.aggregate.state)) from cause
        if not _is_there(table).all():
            raise self._error(method, "a state of which all columns are null", "a value in one of them")
        return table

    def _cast(self, found: pa.Array, method: str) -> pa.Array:
        try:
            return found.cast(arrow_type(self.output))
        except (pa.ArrowException, ValueError) as cause:
            raise self._error(method, str(cause), self.output) from cause

    def _error(self, method: str, found: str, expected: str) -> OperatorError:
        return OperatorError(
            "an aggregate returned what it did not declare",
            object_name=f"{type(self.aggregate).__name__}.{method}",
            found=found,
            expected=expected,
        )


def _is_there(states: pa.Table) -> np.ndarray:
    """Which states exist: in the others, all columns are null."""
    found = np.zeros(states.num_rows, dtype=bool)
    for column in states.columns:
        found |= column.is_valid().to_numpy()
    return found


def _spread(rows: pa.Table, places: np.ndarray) -> list[pa.Array]:
    """The rows at the places that are true, null at the others."""
    indices = pa.array(np.cumsum(places) - 1, mask=~places)
    return [pa.concat_arrays(column.chunks).take(indices) if column.num_chunks else
            pa.nulls(len(places), column.type) for column in rows.columns]  # fmt: skip


def _shown(found: Any) -> str:
    count = f" of {len(found)}" if isinstance(found, pa.Array | pa.Table) else ""
    return f"{type(found).__name__}{count}"
