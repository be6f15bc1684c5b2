"""Sinks whose rows are staged with an epoch and delivered to another system once it is published.

- `table.py` stages: the rows of a subtask become objects of the job, known to retention and verification.
- `delivery.py` reads them back, verified, in order or in parallel.
- `sink.py` is the base of such sinks: what is left to one of them is to deliver an epoch.

May import what `sinks` may, and no other folder of it.
"""

from lakestate.sinks.staged.delivery import StagedEpoch, StagedPart
from lakestate.sinks.staged.sink import StagedSink

__all__ = ["StagedEpoch", "StagedPart", "StagedSink"]
