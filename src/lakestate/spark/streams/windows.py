"""`stream.window(…).aggregate(…)` as nodes: Spark merges rows by key and pane first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakestate.errors import InvalidInputError
from lakestate.operators.aggregates.aggregate import Aggregate
from lakestate.operators.windows.final import WindowAggregate
from lakestate.operators.windows.panes import PANE, WINDOW_END, WINDOW_START
from lakestate.operators.windows.specs import Hopping, Session, Tumbling, Window
from lakestate.row_kind import Emit
from lakestate.spark.graph.nodes import ApplyNode
from lakestate.spark.streams.aggregate import aggregate_input
from lakestate.spark.streams.building import Building

_TAKEN = (WINDOW_START, WINDOW_END, PANE)


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
    """Add the nodes of aggregates by key and window."""
    key = building.schemas.key(node)
    if request.emit is not Emit.FINAL:
        raise InvalidInputError(
            "a window yields final rows only", object_name=request.where, action='pass emit="final"'
        )
    check_window_names([*key, *request.aggregates], request.where)
    match request.window:
        case Tumbling() | Hopping():
            return _add_panes(building, node, request, request.window)
        case Session():
            raise InvalidInputError(
                "sessions cannot be aggregated",
                object_name=request.where,
                expected="ls.Tumbling or ls.Hopping",
            )


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


def _add_panes(
    building: Building, node: Any, request: WindowRequest, window: Tumbling | Hopping
) -> ApplyNode:
    time_us, time_type = building.require_time_us(node, f"a window of {request.where}")
    extra = {PANE: window.grid.pane_sql(time_us)}
    rows = aggregate_input(building, node, request.aggregates, request.where, extra)
    operator = WindowAggregate(
        rows.key,
        window,
        rows.plan,
        emit=request.emit,
        lateness_us=request.lateness_us,
        time_type=time_type,
        arguments=rows.arguments,
    )
    added: ApplyNode = building.graph.add(ApplyNode(rows.node, request.operator_id, operator))
    return added
