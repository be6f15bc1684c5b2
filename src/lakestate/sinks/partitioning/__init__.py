"""Partitioning: which directory each row goes to, by columns and by event time.

Pure. Imports nothing of the other parts of `sinks`.
"""

from lakestate.sinks.partitioning.event_time import EventTime
from lakestate.sinks.partitioning.partitioner import Partitioning

__all__ = ["EventTime", "Partitioning"]
