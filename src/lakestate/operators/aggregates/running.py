"""`RunningAggregate`: aggregates of all rows of a key so far, updated in every epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.operators.aggregates.aggregate import Aggregate
from lakestate.operators.aggregates.changes import change_rows
from lakestate.operators.aggregates.plan import ONE, TRUE, AggregatePlan, changed_rows
from lakestate.operators.aggregates.state_parts import StateParts
from lakestate.operators.context import OperatorContext
from lakestate.operators.operator import Operator
from lakestate.protocol.metadata import Column
from lakestate.row_kind import CHANGE, Emit
from lakestate.tables.arrow.columns import beside
from lakestate.tables.arrow.schema import arrow_fields, columns_of
from lakestate.tables.keyed.table import KeyedTable


class RunningAggregate(Operator):
    """Aggregates by key over all rows so far.

    `arguments` names the columns that each aggregate takes, or is None if the rows already hold
    accumulators, merged by Spark. With `retracts`, rows may be taken back: their column `_sign` says which.

    >>> import lakestate as ls
    >>> from lakestate.testing import OperatorHarness
    >>> totals = RunningAggregate.over("user string", "price bigint", n=ls.count(), spend=ls.sum("price"))
    >>> harness = OperatorHarness(totals)
    >>> harness.epoch([{"user": "ann", "price": 3}, {"user": "ann", "price": 4}])
    [{'user': 'ann', 'n': 2, 'spend': 7}]
    >>> harness.epoch([{"user": "ann", "price": None}])
    [{'user': 'ann', 'n': 3, 'spend': 7}]
    """

    def __init__(
        self,
        key: Sequence[Column],
        plan: AggregatePlan,
        *,
        emit: Emit = Emit.UPDATES,
        arguments: Mapping[str, Sequence[str]] | None = None,
        retracts: bool = False,
    ) -> None:
        self._key = [column.name for column in key]
        self._plan = plan
        self._emit = emit
        self._parts = StateParts.of(tuple(key), plan, arguments, retracts=retracts)
        self._rows: list[pa.RecordBatch] = []
        changes = (Column(CHANGE, "string"),) if emit is Emit.CHANGES else ()
        self.output = pa.schema(arrow_fields((*key, *plan.output, *changes)))
        self.groups = KeyedTable(
            key=pa.schema(arrow_fields(key)),
            value=pa.schema(arrow_fields(self._parts.state.state)),
            description="The accumulators of every key.",
            # A row that did not count for an aggregate of today must not be taken back from it.
            meanings=None if retracts else self._parts.state.meanings,
        )
        for each in self._parts.value_tables:
            setattr(self, each.name, each.table)

    @classmethod
    def over(
        cls,
        key: str,
        columns: str = "",
        *,
        emit: str | None = None,
        time: str | None = None,
        retracts: bool = False,
        **aggregates: Aggregate,
    ) -> Any:
        """The operator over rows with these key and other columns, for tests without Spark.

        Arguments of aggregates are names of columns: expressions need Spark. `time` names the column with
        the event time. With `retracts`, rows have the column `_sign`: 1, or -1 for rows to take back.
        """
        named = columns_of(key, what="key")
        known = {
            column.name: column.type
            for column in (*named, *columns_of(f"{key}, {columns}".rstrip(", "), what="row"))
        }
        bound, arguments = bind_to_columns(aggregates, known, time=time, retracts=retracts)
        emitted = Emit.of(emit or ("changes" if retracts else "updates"), "aggregate")
        return cls(named, bound, emit=emitted, arguments=arguments, retracts=retracts)

    def process_batch(self, batch: pa.RecordBatch, ctx: OperatorContext) -> None:
        """Keep the rows until all are there: then every key is looked up once."""
        self._rows.append(batch)

    def on_epoch_end(self, ctx: OperatorContext) -> Iterator[pa.Table]:
        """Merge the rows into the state, and yield what changed."""
        if not self._rows:
            return
        rows = pa.Table.from_batches(self._rows)
        self._rows = []
        views = {each.name: ctx.view(each.name) for each in self._parts.value_tables}
        keys, update = self._parts.combine(rows, views)
        groups = ctx.view("groups")
        was, found = groups.lookup(keys)
        before = pa.Table.from_batches([found])
        after, is_ = update(before)
        if is_ is None:
            groups.put(beside(keys, after))
        else:
            groups.put(beside(keys, after).filter(is_))
            groups.delete(keys.filter(pa.compute.invert(is_)))
        yield from self._yield_results(keys, before, after, was, is_)

    def _yield_results(
        self, keys: pa.Table, before: pa.Table, after: pa.Table, was: pa.Array, is_: pa.Array | None
    ) -> Iterator[pa.Table]:
        new = self._with_results(keys, after)
        if self._emit is not Emit.CHANGES:
            yield new
            return
        old = self._with_results(keys, before)
        there = pa.array(np.ones(keys.num_rows, dtype=bool)) if is_ is None else is_
        yield change_rows(old, new, was, there, changed_rows(self._plan, old, new))

    def _with_results(self, keys: pa.Table, rows: pa.Table) -> pa.Table:
        results = self._parts.state.results(rows)
        names = list(self._plan.aggregates)
        return pa.table(
            [*keys.columns, *(results[name] for name in names)], names=[*keys.column_names, *names]
        )


def bind_to_columns(
    aggregates: Mapping[str, Aggregate],
    types: Mapping[str, str],
    *,
    time: str | None = None,
    retracts: bool = False,
) -> tuple[AggregatePlan, dict[str, tuple[str, ...]]]:
    """The plan of aggregates whose arguments are columns, and the columns that each takes."""
    known = {**types, ONE: "int", TRUE: "boolean"}
    taken: dict[str, tuple[str, ...]] = {}
    for name, aggregate in aggregates.items():
        unknown = [text for text in aggregate.arguments if text not in known]
        if unknown or aggregate.where is not None:
            raise InvalidInputError(
                "an aggregate outside of a pipeline takes columns only, no expressions",
                object_name=f"{aggregate} of {name}",
                found=", ".join(unknown) or aggregate.where,
                expected=", ".join(types),
            )
        taken[name] = aggregate.row_arguments(time, name)
    types_of = {name: [known[text] for text in columns] for name, columns in taken.items()}
    return AggregatePlan.bind(aggregates, types_of, "", time=time, retracts=retracts), taken
