"""`stream.key_by(…).aggregate(…)` as nodes: Spark merges the rows of an epoch first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakestate.errors import InvalidInputError
from lakestate.operators.aggregates.aggregate import Aggregate
from lakestate.operators.aggregates.plan import AggregatePlan
from lakestate.operators.aggregates.running import RunningAggregate
from lakestate.operators.aggregates.state_parts import ROWS, SIGN
from lakestate.protocol.metadata import Column
from lakestate.row_kind import AFTER, BEFORE, CHANGE, DELETE, INSERT, Emit, RowKind, StreamKind
from lakestate.spark.graph.column_names import quote_name
from lakestate.spark.graph.nodes import ApplyNode, CombineNode, KeyByNode
from lakestate.spark.streams.building import Building, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SIGNS = {
    SIGN: f"CASE WHEN {CHANGE} IN ('{INSERT}', '{AFTER}') THEN 1 "
    f"WHEN {CHANGE} IN ('{DELETE}', '{BEFORE}') THEN -1 END"
}


@dataclass(frozen=True)
class AggregateInput:
    """Rows that an aggregating operator takes: by key, with accumulators or arguments beside it."""

    node: Any
    key: tuple[Column, ...]
    plan: AggregatePlan
    arguments: Mapping[str, Sequence[str]] | None
    """The columns that each aggregate takes; None if the rows hold accumulators."""


def add_running_aggregate(
    building: Building,
    keyed: Any,
    operator_id: str,
    aggregates: Mapping[str, Aggregate],
    emit: Emit | str | None,
    kind: StreamKind,
) -> tuple[ApplyNode, Emit]:
    """Add the nodes of a running aggregate, over final rows or over changes."""
    where = f"aggregate {operator_id}"
    retracts = kind.kind is RowKind.CHANGES
    emitted = _emission(emit, where, retracts)
    rows = aggregate_input(building, keyed, aggregates, where, _SIGNS if retracts else None, retracts)
    operator = RunningAggregate(
        rows.key, rows.plan, emit=emitted, arguments=rows.arguments, retracts=retracts
    )
    return building.graph.add(ApplyNode(rows.node, operator_id, operator)), emitted


def _emission(emit: Emit | str | None, where: str, retracts: bool) -> Emit:
    if emit is None:
        return Emit.CHANGES if retracts else Emit.UPDATES
    found = Emit.of(emit, where)
    if found is Emit.FINAL:
        raise InvalidInputError(
            "a running aggregate is never final",
            object_name=where,
            action='pass emit="updates" or emit="changes", or add a window: .window(ls.Tumbling(…))',
        )
    if retracts and found is Emit.UPDATES:
        raise InvalidInputError(
            "updates cannot say that a key is gone, and over changes it may be",
            object_name=where,
            found='emit="updates"',
            expected='emit="changes"',
        )
    return found


def aggregate_input(
    building: Building,
    keyed: Any,
    aggregates: Mapping[str, Aggregate],
    where: str,
    extra: Mapping[str, str] | None = None,
    retracts: bool = False,
) -> AggregateInput:
    """The rows for aggregates: keys, `extra` columns to group by, and accumulators or arguments.

    If Spark SQL knows all of the aggregates, it merges the rows of each subtask before they reach Python.
    """
    key = building.key_columns(keyed)
    names = [column.name for column in key]
    group_by = quoted(names) | dict(extra or {})
    rows = argument_rows(building, keyed, key, group_by, aggregates, where, retracts)
    routed = building.graph.add(KeyByNode(rows.node, tuple(map(quote_name, names))))
    assert rows.arguments is not None, "they are not merged yet"
    combine = _combine_sql(rows.plan, rows.arguments, retracts)
    if combine is None:
        return replace(rows, node=routed)
    grouped = [quote_name(name) for name in group_by]
    node = building.graph.add(CombineNode(routed, _Combine(tuple(grouped), tuple(combine))))
    return AggregateInput(node, key, rows.plan, None)


def argument_rows(
    building: Building,
    node: Any,
    key: tuple[Column, ...],
    columns: Mapping[str, str],
    aggregates: Mapping[str, Aggregate],
    where: str,
    retracts: bool = False,
) -> AggregateInput:
    """The rows of a node with these columns, as expressions, and the arguments of aggregates. Not routed."""
    _check_aggregates(aggregates, [column.name for column in key], where)
    time = building.time_sql(node)
    arguments: dict[str, tuple[str, ...]] = {}
    expressions: dict[str, str] = {}
    for name, aggregate in aggregates.items():
        taken = aggregate.row_arguments(time, f"{where}, {name}")
        arguments[name] = tuple(f"_{name}_{number}" for number in range(len(taken)))
        expressions |= dict(zip(arguments[name], taken, strict=True))
    prepared = building.select(node, dict(columns) | expressions, where)
    types = {column.name: column.type for column in building.columns(prepared)}
    types_of = {name: [types[column] for column in taken] for name, taken in arguments.items()}
    plan = AggregatePlan.bind(aggregates, types_of, where, time=time, retracts=retracts)
    return AggregateInput(prepared, key, plan, arguments)


@dataclass(frozen=True)
class _Combine:
    """Merges rows by key, and by further columns."""

    group_by: tuple[str, ...]
    accumulators: tuple[str, ...]

    def __call__(self, frame: DataFrame, further: Sequence[str]) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        return frame.groupBy(*further, *self.group_by).agg(*[F.expr(text) for text in self.accumulators])


def _combine_sql(
    plan: AggregatePlan, arguments: Mapping[str, Sequence[str]], retracts: bool
) -> list[str] | None:
    found = [f"count(1) AS {ROWS}"] if retracts else []
    for name, aggregate in plan.aggregates.items():
        sql = aggregate.sql([quote_name(column) for column in arguments[name]])
        if sql is None or (retracts and not aggregate.takes_back):
            return None
        columns = plan.columns_of(name)
        found += [f"{text} AS {quote_name(column)}" for text, column in zip(sql, columns, strict=True)]
    return found


def _check_aggregates(aggregates: Mapping[str, Aggregate], key: Sequence[str], where: str) -> None:
    if not aggregates:
        raise InvalidInputError(
            "an aggregate needs something to compute", object_name=where, action="for example n=ls.count()"
        )
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise InvalidInputError(
                "not an aggregate",
                object_name=f"{name} of {where}",
                found=type(aggregate).__name__,
                expected='an aggregate such as ls.sum("price")',
            )
        if name in key or name in (CHANGE, SIGN, ROWS):
            raise InvalidInputError(
                "an aggregate has the name of a key column" if name in key else "the name is taken",
                object_name=f"{name} of {where}",
                action="give it another name",
            )
