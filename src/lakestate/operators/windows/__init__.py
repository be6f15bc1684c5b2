"""Windows: which rows belong together by their time, and the operators that aggregate them.

No Spark here. A row is late if all of its windows were closed in an earlier epoch. That depends on its time
and on the watermark of the epoch before alone, never on state.
"""

from lakestate.operators.windows.final import WindowAggregate
from lakestate.operators.windows.grid import WindowGrid
from lakestate.operators.windows.specs import Hopping, Session, Tumbling, Window

__all__ = [
    "Hopping",
    "Session",
    "Tumbling",
    "Window",
    "WindowAggregate",
    "WindowGrid",
]
