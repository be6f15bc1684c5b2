"""Looks after a table beside the stream: expires snapshots, removes files that nobody refers to, compacts.

Nothing here is needed for a commit. What fails is tried again at the next time. pyiceberg is imported when
a table is maintained.
"""

from lakestate.sinks.iceberg.maintenance.settings import Maintenance

__all__ = ["Maintenance"]
