"""`KeyedFunctionOperator`: runs a keyed function over columns.

The rows of an epoch are sorted by key and time and turned into Python values column by column; the state of
all keys is looked up at once and written back at once. Only the function itself runs key by key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.operators.context import OperatorContext
from lakestate.operators.keyed_function.calls import KeyedCalls
from lakestate.operators.keyed_function.function import KeyedFunction, declared_states, timer_time
from lakestate.operators.keyed_function.rows import key_groups
from lakestate.operators.operator import Operator
from lakestate.operators.timers.table import Timers
from lakestate.protocol.metadata import Column
from lakestate.tables.arrow.schema import arrow_fields, columns_of
from lakestate.tables.keyed.table import KeyedTable


class KeyedFunctionOperator(Operator):
    """A keyed function as an operator over rows with this key.

    `time` names the column that rows of a key are sorted by, and that event time counts from.
    """

    def __init__(self, function: KeyedFunction, key: str | Sequence[Column], time: str | None = None) -> None:
        columns = columns_of(key, what="key") if isinstance(key, str) else tuple(key)
        _check_key(columns, type(function).__name__)
        self._function = function
        self._key = [column.name for column in columns]
        self._time = time
        self._rows: list[pa.RecordBatch] = []
        self._calls: KeyedCalls | None = None
        self._states = declared_states(function)
        self._timer_time = timer_time(function)
        self.output = function.output
        schema = pa.schema(arrow_fields(columns))
        if self._states:
            stored = tuple(Column(name, state.column_type) for name, state in self._states.items())
            self.state = KeyedTable(
                key=schema,
                value=pa.schema(arrow_fields(stored)),
                ttl=function.ttl,
                description="The state of every key.",
            )
        if self._timer_time is not None:
            self.timers = Timers(key=schema, time=self._timer_time)

    def process_batch(self, batch: pa.RecordBatch, ctx: OperatorContext) -> None:
        """Keep the rows until all are there, so that every key is called once."""
        self._rows.append(batch)

    def on_rows_end(self, ctx: OperatorContext) -> Iterator[pa.Table]:
        """Call the function for every key with rows."""
        if not self._rows:
            return
        rows = pa.Table.from_batches(self._rows)
        self._rows = []
        calls = self._open_calls(ctx)
        yield from calls.process(key_groups(rows, self._key, self._time))

    def on_timer(self, rows: pa.Table, ctx: OperatorContext) -> Iterator[pa.Table]:
        """Call the function for every timer."""
        calls = self._open_calls(ctx)
        yield from calls.fire(rows)

    def on_epoch_end(self, ctx: OperatorContext) -> None:
        """Write the states that changed."""
        if self._calls is not None:
            self._calls.write_states()

    def _open_calls(self, ctx: OperatorContext) -> KeyedCalls:
        if self._calls is None:
            self._calls = KeyedCalls(
                self._function,
                self._key,
                self._states,
                ctx,
                self._timer_time,
                self.output_schema,
            )
        return self._calls


def _check_key(key: Sequence[Column], where: str) -> None:
    nested = [str(column) for column in key if "<" in column.type]
    if nested:
        raise InvalidInputError(
            "a keyed function cannot be keyed by a nested column",
            object_name=where,
            found=", ".join(nested),
            action="key_by the fields that it needs",
        )
