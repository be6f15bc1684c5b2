"""Joins of two streams: by key and a range of time, for ever by name, and with the newest row of a key.

No Spark here: names of columns are settled, and expressions evaluated, before rows arrive.
"""

from lakestate.operators.joins.how import Bounds, How
from lakestate.operators.joins.interval import IntervalJoin, OuterIntervalJoin
from lakestate.operators.joins.lookup import Lookup
from lakestate.operators.joins.windowed import WindowJoin

__all__ = ["Bounds", "How", "IntervalJoin", "Lookup", "OuterIntervalJoin", "WindowJoin"]
