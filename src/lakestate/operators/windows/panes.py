"""`PaneOperator`: the rows of an epoch as accumulators by key and pane, for windows of one size."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lakestate.config import duration_us
from lakestate.errors import InvalidInputError
from lakestate.operators.aggregates.aggregate import Aggregate
from lakestate.operators.aggregates.plan import AggregatePlan
from lakestate.operators.aggregates.running import bind_to_columns
from lakestate.operators.context import OperatorContext
from lakestate.operators.operator import Operator
from lakestate.operators.windows.specs import Duration, Hopping, Tumbling
from lakestate.protocol.metadata import Column
from lakestate.row_kind import CHANGE, Emit
from lakestate.tables.arrow.schema import arrow_fields, arrow_type, columns_of

PANE = "_pane"
"""The column of the input that holds the start of a row's pane, in microseconds since 1970."""

ALL = "_all"
"""The key of windows over all rows: it is the same for all, and not among the results."""

WINDOW_START, WINDOW_END = "window_start", "window_end"
OUTPUT_TIME = f"{WINDOW_END} - INTERVAL 1 MICROSECOND"
"""The event time of results: the last moment of their window, so that the next window counts them in it."""


class PaneOperator(Operator):
    """Takes rows by key and pane.

    `arguments` names the columns that each aggregate takes, or is None if the rows already hold accumulators.
    `time` names a timestamp from which panes are computed, if they are not in the column `_pane`.
    """

    def __init__(
        self,
        key: Sequence[Column],
        window: Tumbling | Hopping,
        plan: AggregatePlan,
        *,
        emit: Emit = Emit.FINAL,
        lateness_us: int = 0,
        time_type: str = "timestamp",
        time: str | None = None,
        arguments: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._key = [column.name for column in key]
        self._plan = plan
        self._emit = emit
        self._grid = window.grid
        self._lateness_us = lateness_us
        self._time = time
        self._time_type = arrow_type(time_type)
        self._arguments = arguments
        self._rows: list[pa.RecordBatch] = []
        shown = [column for column in key if column.name != ALL]
        times = (Column(WINDOW_START, time_type), Column(WINDOW_END, time_type))
        changes = (Column(CHANGE, "string"),) if emit is Emit.CHANGES else ()
        self.output = pa.schema(arrow_fields((*shown, *times, *plan.output, *changes)))
        self.output_time = OUTPUT_TIME
        self._declare_state(key, window, time_type)

    @classmethod
    def over(
        cls,
        key: str,
        columns: str,
        window: Tumbling | Hopping,
        *,
        time: str = "ts",
        emit: str = "final",
        allowed_lateness: Duration = "0 seconds",
        **aggregates: Aggregate,
    ) -> Any:
        """The operator over rows with these key and other columns, for tests without Spark.

        `time` names the timestamp among them. Arguments of aggregates are names of columns.
        """
        named = columns_of(key, what="key")
        declared = f"{key}, {columns}".rstrip(", ")
        known = {column.name: column.type for column in columns_of(declared, what="row")}
        if time not in known and window.time == "event":
            raise InvalidInputError("a window needs the time of rows", found=declared, expected=time)
        plan, arguments = bind_to_columns(aggregates, known, time=time if time in known else None)
        return cls(
            named,
            window,
            plan,
            emit=Emit.of(emit, "window"),
            lateness_us=duration_us(allowed_lateness),
            time_type=known.get(time, "timestamp"),
            time=time if time in known else None,
            arguments=arguments,
        )

    def process_batch(self, batch: pa.RecordBatch, ctx: OperatorContext) -> None:
        """Keep the rows until all are there: then they are merged once."""
        self._rows.append(batch)

    @abstractmethod
    def _declare_state(self, key: Sequence[Column], window: Tumbling | Hopping, time_type: str) -> None:
        """Declare the tables."""

    def _take_rows(self, ctx: OperatorContext) -> pa.Table | None:
        """The rows of the epoch that are not late, as accumulators by key and pane."""
        if not self._rows:
            return None
        by = [*self._key, PANE]
        rows = self._with_panes(pa.Table.from_batches(self._rows), ctx)
        self._rows = []
        if self._arguments is not None:
            rows = self._plan.combine(rows, by, self._arguments)
        return self._without_late(rows, ctx)

    def _with_panes(self, rows: pa.Table, ctx: OperatorContext) -> pa.Table:
        """The rows with the starts of their panes. A row without time belongs to none."""
        if self._time is None:
            return rows.filter(rows[PANE].is_valid())
        rows = rows.filter(rows[self._time].is_valid())
        times = rows[self._time].cast(pa.int64()).to_numpy()
        return rows.append_column(PANE, pa.array(self._grid.panes(times)))

    def _without_late(self, rows: pa.Table, ctx: OperatorContext) -> pa.Table:
        """The rows of panes with a window that was open when the epoch before ended."""
        if ctx.previous_watermark_us is None or not rows.num_rows:
            return rows
        closes = self._grid.last_end(rows[PANE].to_numpy()) + self._lateness_us
        return rows.filter(pa.array(closes > ctx.previous_watermark_us))

    def _timestamps(self, micros: np.ndarray) -> pa.Array:
        return pa.array(micros, pa.int64()).cast(self._time_type)

    def _shown(self, groups: pa.Table) -> pa.Table:
        """The results of groups by key and window start."""
        starts = groups[WINDOW_START].cast(pa.int64()).to_numpy()
        keys = [name for name in self._key if name != ALL]
        results = self._plan.results(groups)
        return pa.table(
            [
                *groups.select(keys).columns,
                self._timestamps(starts),
                self._timestamps(starts + self._grid.size_us),
                *results.values(),
            ],
            names=[*keys, WINDOW_START, WINDOW_END, *results],
        )
