"""Sinks whose rows are staged with an epoch and delivered to another system once it is published.

- `lakestate.tables.staged` stages: the rows of a subtask become files of a state table.
- `delivery.py` reads them back, verified, in order or in parallel.
- `sink.py` is the base of such sinks: what is left to one of them is to deliver an epoch.

May import what `sinks` may, and no folder that is not below it.
"""

from lakestate.sinks.staged.delivery import StagedEpoch, StagedPart
from lakestate.sinks.staged.sink import StagedSink

__all__ = ["StagedEpoch", "StagedPart", "StagedSink"]
