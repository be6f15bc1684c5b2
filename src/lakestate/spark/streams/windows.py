"""`stream.window(…).aggregate(…)` as nodes: Spark merges rows by key and pane first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakestate.errors import InvalidInputError
from lakestate.operators.aggregates.aggregate import Aggregate
from lakestate.operators.operator import Operator
from lakestate.operators.windows.final import WindowAggregate
from lakestate.operators.windows.panes import ALL, PANE, WINDOW_END, WINDOW_START, PaneOperator
from lakestate.operators.windows.partials import PanePartials
from lakestate.operators.windows.processing import ProcessingTimeWindows
from lakestate.operators.windows.sessions import TIME, SessionAggregate
from lakestate.operators.windows.specs import Hopping, Session, Tumbling, Window, WindowTime
from lakestate.operators.windows.updating import UpdatingWindows
from lakestate.protocol.metadata import Column
from lakestate.row_kind import Emit
from lakestate.spark.graph.column_names import quote_name
from lakestate.spark.graph.nodes import ApplyNode, KeyByNode, TransformNode
from lakestate.spark.streams.aggregate import AggregateInput, aggregate_input, argument_rows
from lakestate.spark.streams.building import Building, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TAKEN = (WINDOW_START, WINDOW_END, "pane_start", "session_start", "last_row", "open_until", PANE, ALL, TIME)
"""Columns of results, of state, and of the rows between."""


@dataclass(frozen=True)
class WindowRequest:
    """What a user asks for: aggregates by window, of one operator."""

    operator_id: str
    window: Window
    lateness_us: int
    emit: Emit
    aggregates: Mapping[str, Aggregate]

    @property
    def where(self) -> str:
        """What errors are about."""
        return f"aggregate {self.operator_id}"


def add_window_aggregate(building: Building, node: Any, request: WindowRequest) -> ApplyNode:
    """Add the nodes of aggregates by window, and by key if the rows have one."""
    key = building.schemas.key(node)
    check_window_names([*key, *request.aggregates], request.where)
    rows: AggregateInput
    operator: Operator
    match request.window:
        case Tumbling() | Hopping():
            rows, operator = _pane_step(building, node, request, request.window)
        case Session():
            rows, operator = _session_step(building, node, request, request.window)
    added: ApplyNode = building.graph.add(ApplyNode(rows.node, request.operator_id, operator))
    return added


def closes_sql(building: Building, node: Any, window: Window, lateness_us: int, what: str) -> str:
    """When the last window of a row closes, in microseconds since 1970, as an SQL expression.

    A row is late if the epoch before had reached that: operators decide it by the same numbers.
    """
    if is_by_processing_time(window):
        raise InvalidInputError("no row is late by processing time", object_name=what, found=str(window))
    time_us, _ = building.require_time_us(node, what)
    match window:
        case Session():
            return f"{time_us} + {window.gap_us + lateness_us}"
        case _:
            return f"{window.grid.last_end_sql(time_us)} + {lateness_us}"


def check_window_names(names: Sequence[str], where: str) -> None:
    """Refuse columns with the names that windows give to theirs."""
    for name in names:
        if name.lower() in _TAKEN:
            raise InvalidInputError(
                "a window has a column of this name itself",
                object_name=f"{name} of {where}",
                found=name,
                expected=f"a name other than {', '.join(_TAKEN)}",
                action="give the aggregate, or the key with key_by(… AS …), another name",
            )


def is_by_processing_time(window: Window) -> bool:
    """Whether rows are divided by the time at which their epochs begin."""
    return not isinstance(window, Session) and WindowTime(window.time) is WindowTime.PROCESSING


def _pane_step(
    building: Building, node: Any, request: WindowRequest, window: Tumbling | Hopping
) -> tuple[AggregateInput, PaneOperator]:
    kind = _pane_operator(request)
    if is_by_processing_time(window):
        # The operator knows the time of the epoch, which is the same for all rows.
        pane, time_type = "CAST(0 AS BIGINT)", "timestamp"
    else:
        time_us, time_type = building.require_time_us(node, f"a window of {request.where}")
        pane = window.grid.pane_sql(time_us)
    if building.schemas.key(node):
        rows = aggregate_input(building, node, request.aggregates, request.where, {PANE: pane})
    else:
        rows = _merge_all(building, node, request, pane)
    operator = kind(
        rows.key,
        window,
        rows.plan,
        emit=request.emit,
        lateness_us=request.lateness_us,
        time_type=time_type,
        arguments=rows.arguments,
    )
    return rows, operator


def _pane_operator(request: WindowRequest) -> type[PaneOperator]:
    if not is_by_processing_time(request.window):
        return WindowAggregate if request.emit is Emit.FINAL else UpdatingWindows
    if request.emit is not Emit.FINAL or request.lateness_us:
        raise InvalidInputError(
            "a window of processing time comes out once, when its time has passed",
            object_name=request.where,
            found=f'emit="{request.emit.value}"' if request.emit is not Emit.FINAL else "allowed_lateness",
            action='leave it out, or use event time: time="event"',
        )
    return ProcessingTimeWindows


def _merge_all(building: Building, node: Any, request: WindowRequest, pane: str) -> AggregateInput:
    """The rows of every part of the input merged by pane where they are: only panes go to one subtask."""
    rows = argument_rows(building, node, (), {PANE: pane}, request.aggregates, request.where)
    assert rows.arguments is not None, "they are not merged yet"
    partials = PanePartials(rows.plan, rows.arguments)
    declared = ", ".join(f"{quote_name(column.name)} {column.type}" for column in partials.columns)

    def merge_panes(frame: DataFrame) -> DataFrame:
        return frame.mapInArrow(partials, declared)

    merged = building.graph.add(TransformNode(rows.node, merge_panes))
    # Rows of several parts have the same pane: the operator merges them again when they are read.
    routed = building.graph.add(KeyByNode(merged, (ALL,)))
    return AggregateInput(routed, (Column(ALL, "int"),), rows.plan, None)


def _session_step(
    building: Building, node: Any, request: WindowRequest, window: Session
) -> tuple[AggregateInput, SessionAggregate]:
    names = building.schemas.key(node)
    _check_session(request, names)
    time_us, time_type = building.require_time_us(node, f"a window of {request.where}")
    columns = quoted(names) | {TIME: time_us}
    rows = argument_rows(
        building, node, building.key_columns(node), columns, request.aggregates, request.where
    )
    assert rows.arguments is not None, "sessions are not known before rows are in order"
    routed = building.graph.add(KeyByNode(rows.node, tuple(map(quote_name, names))))
    operator = SessionAggregate(
        rows.key,
        window,
        rows.plan,
        rows.arguments,
        emit=request.emit,
        lateness_us=request.lateness_us,
        time_type=time_type,
    )
    return AggregateInput(routed, rows.key, rows.plan, rows.arguments), operator


def _check_session(request: WindowRequest, key: Sequence[str]) -> None:
    if not key:
        raise InvalidInputError(
            "sessions need a key",
            object_name=request.where,
            action='call key_by first; key_by("0 AS everything") makes sessions of all rows, in one subtask',
        )
    if request.emit is Emit.UPDATES:
        raise InvalidInputError(
            "sessions that become one cannot be told as updates: the row of the later one would stay",
            object_name=request.where,
            found='emit="updates"',
            action='pass emit="changes", or emit="final"',
        )
