"""`left.key_by(…).join(…, right.key_by(…))` as nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lakestate.errors import InvalidInputError
from lakestate.operators.joins.how import FOR_EVER, Bounds, How, Within
from lakestate.operators.joins.interval import interval_join_class
from lakestate.operators.joins.windowed import WindowJoin
from lakestate.operators.operator import Operator
from lakestate.operators.windows.specs import Hopping, Tumbling
from lakestate.spark.graph.column_names import quote_name
from lakestate.spark.graph.nodes import ApplyNode, ConnectNode, KeyByNode
from lakestate.spark.streams.building import Building
from lakestate.spark.streams.join_names import (
    TIME,
    check_free,
    check_keys,
    join_names,
    later_sql,
    rename_in_sql,
    time_column,
)
from lakestate.spark.streams.windows import check_window_names


@dataclass(frozen=True)
class JoinOptions:
    """What users say about a join."""

    how: How | str
    within: Within
    keep: str | timedelta | None
    prefix: tuple[str, str] | None


def add_join(building: Building, left: Any, right: Any, operator_id: str, options: JoinOptions) -> ApplyNode:
    """Add the nodes of a join of two keyed streams."""
    where = f"join {operator_id}"
    how = How.of(options.how, where)
    bounds = Bounds.of(options.within, options.keep, where)
    _check_for_ever(how, bounds, where)
    sides = _Sides.of(building, (left, right), how, bounds, options.prefix, where)
    if how in (How.LEFT, How.RIGHT, How.FULL):
        sides.check_time_is_no_key(how, where)
    operator = interval_join_class(how)(
        *sides.arguments(building), bounds, how, hidden=[TIME], output_time=_output_time(sides, how, bounds)
    )
    return sides.connect(building, operator_id, operator)


def add_window_join(
    building: Building,
    left: Any,
    right: Any,
    operator_id: str,
    window: Tumbling | Hopping,
    lateness_us: int,
    options: JoinOptions,
) -> ApplyNode:
    """Add the nodes of a join of two keyed streams by window."""
    where = f"join {operator_id}"
    how = How.of(options.how, where)
    sides = _Sides.of(building, (left, right), how, Bounds(0, 0), options.prefix, where)
    for side in (sides.left, sides.right):
        own = [TIME] if side.time == TIME else []
        check_window_names([name for name in _names(building, side.node) if name not in own], where)
    arguments = sides.arguments(building)
    operator = WindowJoin(*arguments, window, how, lateness_us=lateness_us, hidden=[TIME])
    return sides.connect(building, operator_id, operator)


@dataclass(frozen=True)
class _Side:
    """The rows of one side under the names of the output."""

    node: KeyByNode
    time: str
    """The column that the operator takes for the time."""
    type: str
    sql: str | None
    """The event time over columns of the output, if there is one."""
    is_key: bool
    """Whether that is a column of the key, which both sides have."""

    @classmethod
    def of(
        cls,
        building: Building,
        node: Any,
        names: Mapping[str, str],
        key: Sequence[str],
        bounds: Bounds | None,
        where: str,
    ) -> _Side:
        """Select the columns under their new names, and the time if none of them is it."""
        found = building.time_sql(node) if bounds is None else building.require_time(node, where)
        selected = {new: quote_name(name) for name, new in names.items()}
        column = None if found is None else time_column(found, _names(building, node))
        is_key = column in building.schemas.key(node)
        time = TIME
        if column is not None and column in names and bounds is not None and not is_key:
            time = names[column]
        else:
            check_free(selected, where)
            selected[TIME] = "timestamp_micros(0)" if bounds is None else str(found)
        chosen = building.select(node, selected, where)
        routed = building.graph.add(KeyByNode(chosen, tuple(map(quote_name, key))))
        types = {column.name: column.type for column in building.columns(routed)}
        sql = None if found is None else rename_in_sql(found, names)
        return cls(routed, time, types[time], sql, is_key)


@dataclass(frozen=True)
class _Sides:
    """Both sides, with the names of the key."""

    key: tuple[str, ...]
    left: _Side
    right: _Side

    @classmethod
    def of(
        cls,
        building: Building,
        nodes: tuple[Any, Any],
        how: How,
        bounds: Bounds | None,
        prefix: tuple[str, str] | None,
        where: str,
    ) -> _Sides:
        """Both sides under the names of the output. Of a right side that does not come out, key and time."""
        check_keys(building, *nodes, where)
        left, right = nodes
        key, right_key = building.schemas.key(left), building.schemas.key(right)
        right_columns = _names(building, right) if how.yields_pairs else right_key
        names = join_names(_names(building, left), right_columns, (key, right_key), prefix, where)
        found = cls(
            key,
            _Side.of(building, left, names.left, key, bounds, where),
            _Side.of(building, right, names.right, key, bounds, where),
        )
        found._check_types(where)
        return found

    def arguments(self, building: Building) -> tuple[Any, Any, Any, tuple[str, str]]:
        """What operators take: the key, the columns of both sides, and their times."""
        columns = [building.columns(side.node) for side in (self.left, self.right)]
        return self.key, columns[0], columns[1], (self.left.time, self.right.time)

    def connect(self, building: Building, operator_id: str, operator: Operator) -> ApplyNode:
        """Add the nodes of the operator."""
        connected = building.graph.add(ConnectNode(self.left.node, self.right.node))
        joined = ApplyNode(connected, operator_id, operator)
        building.graph.add(joined)
        return joined

    def _check_types(self, where: str) -> None:
        if self.left.type != self.right.type:
            raise InvalidInputError(
                "the event times of both sides are of different types",
                object_name=where,
                found=f"{self.left.type} and {self.right.type}",
                action="cast one of them before pipeline.source()",
            )

    def check_time_is_no_key(self, how: How, where: str) -> None:
        """The key is there in every row, so its time would not say which rows have no match."""
        if self.left.is_key or self.right.is_key:
            raise InvalidInputError(
                "the event time is a column of the key",
                object_name=where,
                found=f"how={how.value!r}",
                action='key_by a copy of it: key_by("ts AS at")',
            )


def _names(building: Building, node: Any) -> list[str]:
    return [column.name for column in building.columns(node)]


def _output_time(sides: _Sides, how: How, bounds: Bounds | None) -> str | None:
    """The time at which a result is known: of a pair the later one, of a row alone the end of its range.

    With an earlier time, rows would be late for a window that follows.
    """
    left, right = sides.left, sides.right
    times = [side.sql for side in (left, right) if side.sql is not None]
    if bounds is None:
        both = how.yields_pairs and len(times) == 2
        return f"greatest({', '.join(times)})" if both else left.sql
    assert left.sql is not None, "a bounded join has both times"
    assert right.sql is not None, "a bounded join has both times"
    left_alone, right_alone = later_sql(left.sql, bounds.upper_us), later_sql(right.sql, -bounds.lower_us)
    if not how.yields_pairs:
        return left_alone
    found = f"greatest({left.sql}, {right.sql})"
    if how.yields_left_alone:
        found = f"CASE WHEN {right.sql} IS NULL THEN {left_alone} ELSE {found} END"
    if how.yields_right_alone:
        found = f"CASE WHEN {left.sql} IS NULL THEN {right_alone} ELSE {found} END"
    return found


def _check_for_ever(how: How, bounds: Bounds | None, where: str) -> None:
    if bounds is None and how not in (How.INNER, How.SEMI):
        raise InvalidInputError(
            "rows that are kept for ever can always find a match, so none comes out without one",
            object_name=where,
            found=f"how={how.value!r}, keep={FOR_EVER!r}",
            action='pass within=(…) or keep="7 days", or how="inner"',
        )
