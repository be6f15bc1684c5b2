"""`stream.window(…).top(…)` as nodes. Without a key, Spark cuts the rows of each window first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakestate.errors import InvalidInputError
from lakestate.operators.selection import Ranking, RowColumns, Ties, WindowTop
from lakestate.operators.selection.window_top import has_windows
from lakestate.operators.windows.grid import WindowGrid
from lakestate.operators.windows.panes import PANE
from lakestate.operators.windows.specs import Hopping, Tumbling, Window, WindowTime
from lakestate.row_kind import Emit
from lakestate.spark.graph.column_names import quote_name
from lakestate.spark.graph.nodes import ApplyNode, KeyByNode, TransformNode
from lakestate.spark.streams.building import Building, quoted
from lakestate.spark.streams.top import order_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RANK = "__rank"


@dataclass(frozen=True)
class WindowTopRequest:
    """What a user asks for: the n first rows of each window, and of each key if there is one."""

    operator_id: str
    window: Window
    lateness_us: int
    n: int
    by: str
    ties: str
    emit: Emit | str

    @property
    def where(self) -> str:
        """What errors are about."""
        return f"top {self.operator_id}"


def add_window_top(
    building: Building, node: Any, key: tuple[str, ...], request: WindowTopRequest
) -> ApplyNode:
    """Add the nodes of a top-N by window. Without `key`, it is that of all rows."""
    where, window = request.where, _checked_window(request)
    ties = Ties.of(request.ties, where)
    time_us, time_type = building.require_time_us(node, f"a window of {where}")
    names = [column.name for column in building.columns(node)]
    has_windows(names, window, where)
    RowColumns(building.columns(node), key).require_free(PANE, where)
    order, expressions = order_columns(building, node, key, request.n, request.by, ties, where)
    ranking = Ranking(request.n, order, ties)
    columns = quoted(names) | expressions | {PANE: window.grid.pane_sql(time_us)}
    node = building.select(node, columns, where)
    if not key:
        node = building.graph.add(TransformNode(node, _CutEachWindow(ranking, window.grid)))
    node = building.graph.add(KeyByNode(node, tuple(map(quote_name, key or (PANE,)))))
    rows = RowColumns(building.columns(node), key or (PANE,), (*expressions, PANE))
    operator = WindowTop(
        rows, ranking, window, lateness_us=request.lateness_us, time_type=time_type, spread=not key
    )
    added: ApplyNode = building.graph.add(ApplyNode(node, request.operator_id, operator))
    return added


@dataclass(frozen=True)
class _CutEachWindow:
    """The best rows of each window, with its start in place of that of the pane.

    Spark cuts the rows of its own partitions before it sends any. Rows that the order leaves tied all stay.
    """

    ranking: Ranking
    grid: WindowGrid

    def __call__(self, rows: DataFrame) -> DataFrame:
        best = self._cut(rows.where(f"{PANE} IS NOT NULL"))
        if self.grid.is_tumbling:
            return best
        others = [quote_name(name) for name in best.columns if name != PANE]
        return self._cut(best.selectExpr(*others, f"explode({self.grid.windows_sql(PANE)}) AS {PANE}"))

    def _cut(self, rows: DataFrame) -> DataFrame:
        order = ", ".join(each.over(quote_name(each.expression)).sql for each in self.ranking.order)
        rank = f"rank() OVER (PARTITION BY {PANE} ORDER BY {order}) AS {_RANK}"
        return rows.selectExpr("*", rank).where(f"{_RANK} <= {self.ranking.n}").drop(_RANK)


def _checked_window(request: WindowTopRequest) -> Tumbling | Hopping:
    if Emit.of(request.emit, request.where) is not Emit.FINAL:
        raise InvalidInputError(
            "the best rows of a window are yielded once, when it closes",
            object_name=request.where,
            found=f"emit={request.emit!r}",
            action="leave out emit; for updates, use key_by(…).top(…) with the window as a key column",
        )
    window = request.window
    if not isinstance(window, Tumbling | Hopping) or WindowTime(window.time) is not WindowTime.EVENT:
        raise InvalidInputError(
            "a top-N takes windows of one size, in event time",
            object_name=request.where,
            found=str(window),
            expected='ls.Tumbling("10 seconds") or ls.Hopping("10 seconds", every="2 seconds")',
        )
    return window
