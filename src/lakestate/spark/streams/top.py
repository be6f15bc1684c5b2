"""`stream.key_by(…).top(…)` as nodes: Spark evaluates the expressions of the order."""

from __future__ import annotations

from typing import Any

from lakestate.errors import InvalidInputError
from lakestate.operators.selection import OrderBy, Ranking, RowColumns, Ties, TopRows, parse_order
from lakestate.operators.selection.order_by import check_sortable
from lakestate.operators.selection.top import rank_columns
from lakestate.row_kind import CHANGE, Emit, StreamKind
from lakestate.spark.graph.column_names import column_named, quote_name
from lakestate.spark.graph.nodes import ApplyNode, KeyByNode
from lakestate.spark.streams.building import Building, quoted


def add_top(
    building: Building, keyed: Any, operator_id: str, *, n: int, by: str, ties: str, emit: Emit | str | None
) -> tuple[ApplyNode, StreamKind]:
    """Add the nodes of a running top-N."""
    where = f"top {operator_id}"
    rule = Ties.of(ties, where)
    default = Emit.UPDATES if rule is Ties.BREAK else Emit.CHANGES
    emitted = default if emit is None else Emit.of(emit, where)
    _check_emission(rule, emitted, where)
    node, columns, ranking = rows_with_order(building, keyed, n, by, rule, where)
    operator = TopRows(columns, ranking, emit=emitted)
    # The only row of a key is replaced whatever its rank is, which is always 1.
    key = columns.key if n == 1 and rule is Ties.BREAK else (*columns.key, rank_columns(rule)[-1].name)
    return building.graph.add(ApplyNode(node, operator_id, operator)), StreamKind(emitted.kind, key)


def rows_with_order(
    building: Building, keyed: Any, n: int, by: str, ties: Ties, where: str
) -> tuple[Any, RowColumns, Ranking]:
    """Keyed rows with a column for each expression of an order that is not a column already."""
    names = [column.name for column in building.columns(keyed)]
    key = building.schemas.key(keyed)
    order, expressions = order_columns(building, keyed, key, n, by, ties, where)
    node = keyed
    if expressions:
        selected = building.select(keyed, quoted(names) | expressions, where)
        node = building.graph.add(KeyByNode(selected, tuple(map(quote_name, key))))
    rows = RowColumns(building.columns(node), key, tuple(expressions))
    check_sortable(order, rows.schema, where)
    return node, rows, Ranking(n, order, ties)


def order_columns(
    building: Building, node: Any, key: tuple[str, ...], n: int, by: str, ties: Ties, where: str
) -> tuple[tuple[OrderBy, ...], dict[str, str]]:
    """An order by columns, and the expressions of those that the rows do not have."""
    if type(n) is not int or n < 1:
        raise InvalidInputError(
            "not a number of rows", object_name=where, found=repr(n), expected="1 or more"
        )
    rows = RowColumns(building.columns(node), key)
    for added in (CHANGE, *(column.name for column in rank_columns(ties))):
        rows.require_free(added, where)
    order: list[OrderBy] = []
    expressions: dict[str, str] = {}
    for number, each in enumerate(parse_order(by, where), start=1):
        plain, made = column_named(each.expression, rows.output_names), f"_order_{number}"
        if plain is None:
            rows.require_free(made, where)
            expressions[made] = each.expression
        order.append(each.over(made if plain is None else plain))
    return tuple(order), expressions


def _check_emission(ties: Ties, emit: Emit, where: str) -> None:
    if emit is Emit.FINAL:
        raise InvalidInputError(
            "the best rows of a key are never final",
            object_name=where,
            action='pass emit="updates" or emit="changes", or add a window: .window(ls.Tumbling(…))',
        )
    if ties is Ties.ALL and emit is Emit.UPDATES:
        raise InvalidInputError(
            'a row of ties="all" may leave without another in its place, and updates cannot say so',
            object_name=where,
            action='pass emit="changes", or leave out ties',
        )
