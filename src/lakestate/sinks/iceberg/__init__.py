"""Appends to Iceberg tables: the data files are those of a file sink, and each epoch is one commit.

May import `files`, `formats`, `partitioning`, `staged` and `table_format`. pyiceberg is imported when a
table is first used.
"""

from lakestate.sinks.iceberg.catalog import IcebergCatalog
from lakestate.sinks.iceberg.sink import IcebergSink

__all__ = [
    "IcebergCatalog",
    "IcebergSink",
]
