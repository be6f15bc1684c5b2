"""Windows: which rows belong together by their time, and the operators that aggregate them.

No Spark here. A row is late if all of its windows were closed in an earlier epoch. That depends on its time
and on the watermark of the epoch before alone, never on state.
"""

from lakestate.operators.windows.final import WindowAggregate
from lakestate.operators.windows.grid import WindowGrid
from lakestate.operators.windows.processing import ProcessingTimeWindows
from lakestate.operators.windows.sessions import SessionAggregate
from lakestate.operators.windows.specs import Hopping, Session, Tumbling, Window
from lakestate.operators.windows.updating import UpdatingWindows

__all__ = [
    "Hopping",
    "ProcessingTimeWindows",
    "Session",
    "SessionAggregate",
    "Tumbling",
    "UpdatingWindows",
    "Window",
    "WindowAggregate",
    "WindowGrid",
]
