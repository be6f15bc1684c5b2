"""Rows by key in a table: the changes of an epoch in one commit, which rewrites files with changed keys.

May import the modules of `iceberg` except its sink, and `staged`. pyiceberg is imported for a delivery.
"""

from lakestate.sinks.iceberg.upserts.sink import IcebergUpsertSink

__all__ = ["IcebergUpsertSink"]
