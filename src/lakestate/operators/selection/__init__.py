"""Operators that select rows of a key: the first, the last, the n best.

Which row comes first is decided by a total order, so that the selection depends neither on batches nor on the
order in which rows arrive within an epoch. No Spark here: expressions are evaluated before rows arrive.
"""

from lakestate.operators.selection.first_rows import FirstRows, FirstRowsForEver
from lakestate.operators.selection.newest_rows import NewestRows
from lakestate.operators.selection.order_by import OrderBy, parse_order
from lakestate.operators.selection.row_columns import RowColumns
from lakestate.operators.selection.settled_rows import SettledRows
from lakestate.operators.selection.top import Ranking, Ties, TopRows
from lakestate.operators.selection.window_top import WindowTop

__all__ = [
    "FirstRows",
    "FirstRowsForEver",
    "NewestRows",
    "OrderBy",
    "Ranking",
    "RowColumns",
    "SettledRows",
    "Ties",
    "TopRows",
    "WindowTop",
    "parse_order",
]
