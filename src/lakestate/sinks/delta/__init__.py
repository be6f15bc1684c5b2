"""Delta tables: each epoch is one commit of the table's log, of files of a file sink, or of a merge by key.

May import `files`, `formats`, `partitioning`, `staged` and `table_format`. deltalake is imported when a
table is first used.
"""

from lakestate.sinks.delta.sink import DeltaSink

__all__ = ["DeltaSink"]
