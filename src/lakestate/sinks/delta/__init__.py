"""Delta tables: the data files are those of a file sink, and each epoch is one commit of the table's log.

May import `files`, `formats` and `partitioning`. deltalake is imported when a table is first used.
"""

from lakestate.sinks.delta.sink import DeltaSink

__all__ = ["DeltaSink"]
