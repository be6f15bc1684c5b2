"""`stream.key_by(…).aggregate(…)` as nodes: Spark merges the rows of an epoch first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakestate.errors import InvalidInputError
from lakestate.operators.aggregates.aggregate import Aggregate
from lakestate.operators.aggregates.plan import AggregatePlan
from lakestate.operators.aggregates.running import RunningAggregate
from lakestate.protocol.metadata import Column
from lakestate.row_kind import CHANGE, Emit
from lakestate.spark.graph.column_names import quote_name
from lakestate.spark.graph.nodes import ApplyNode, CombineNode, KeyByNode
from lakestate.spark.streams.building import Building, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class AggregateInput:
    """Rows that an aggregating operator takes: by key, with accumulators or arguments beside it."""

    node: Any
    key: tuple[Column, ...]
    plan: AggregatePlan
    arguments: Mapping[str, Sequence[str]] | None
    """The columns that each aggregate takes; None if the rows hold accumulators."""


def add_running_aggregate(
    building: Building, keyed: Any, operator_id: str, aggregates: Mapping[str, Aggregate], emit: Emit | str
) -> tuple[ApplyNode, Emit]:
    """Add the nodes of a running aggregate."""
    where = f"aggregate {operator_id}"
    emitted = Emit.of(emit, where)
    if emitted is Emit.FINAL:
        raise InvalidInputError(
            "a running aggregate is never final",
            object_name=where,
            action='pass emit="updates" or emit="changes", or add a window: .window(ls.Tumbling(…))',
        )
    rows = aggregate_input(building, keyed, aggregates, where)
    operator = RunningAggregate(rows.key, rows.plan, emit=emitted, arguments=rows.arguments)
    return building.graph.add(ApplyNode(rows.node, operator_id, operator)), emitted


def aggregate_input(
    building: Building,
    keyed: Any,
    aggregates: Mapping[str, Aggregate],
    where: str,
    extra: Mapping[str, str] | None = None,
) -> AggregateInput:
    """The rows for aggregates: keys, `extra` columns to group by, and accumulators or arguments.

    If Spark SQL knows all of the aggregates, it merges the rows of each subtask before they reach Python.
    """
    key = building.key_columns(keyed)
    names = [column.name for column in key]
    group_by = quoted(names) | dict(extra or {})
    rows = argument_rows(building, keyed, key, group_by, aggregates, where)
    routed = building.graph.add(KeyByNode(rows.node, tuple(map(quote_name, names))))
    assert rows.arguments is not None, "they are not merged yet"
    combine = _combine_sql(rows.plan, rows.arguments)
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
) -> AggregateInput:
    """The rows of a node with these columns, as expressions, and the arguments of aggregates. Not routed."""
    _check_aggregates(aggregates, [column.name for column in key], where)
    arguments: dict[str, tuple[str, ...]] = {}
    expressions: dict[str, str] = {}
    for name, aggregate in aggregates.items():
        taken = aggregate.row_arguments()
        arguments[name] = tuple(f"_{name}_{number}" for number in range(len(taken)))
        expressions |= dict(zip(arguments[name], taken, strict=True))
    prepared = building.select(node, dict(columns) | expressions, where)
    types = {column.name: column.type for column in building.columns(prepared)}
    plan = AggregatePlan(
        {
            name: aggregate.bind([types[column] for column in arguments[name]], f"{where}, {name}")
            for name, aggregate in aggregates.items()
        }
    )
    return AggregateInput(prepared, key, plan, arguments)


@dataclass(frozen=True)
class _Combine:
    """Merges the rows of each subtask by key."""

    group_by: tuple[str, ...]
    accumulators: tuple[str, ...]

    def __call__(self, frame: DataFrame, subtask: str) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        return (
            frame.groupBy(subtask, *self.group_by)
            .agg(*[F.expr(text) for text in self.accumulators])
            .drop(subtask)
        )


def _combine_sql(plan: AggregatePlan, arguments: Mapping[str, Sequence[str]]) -> list[str] | None:
    found: list[str] = []
    for name, aggregate in plan.aggregates.items():
        sql = aggregate.sql([quote_name(column) for column in arguments[name]])
        if sql is None:
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
        if name in key or name == CHANGE:
            raise InvalidInputError(
                "an aggregate has the name of a key column" if name in key else "the name is taken",
                object_name=f"{name} of {where}",
                action="give it another name",
            )
