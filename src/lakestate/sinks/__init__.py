"""Sinks: exactly-once output that stays open across epochs.

What users name is here; `sink` is the contract with the runtime, for those who write their own.
"""

from lakestate.sinks.formats.json_lines.sink import JsonLinesSink
from lakestate.sinks.formats.parquet.sink import ParquetSink
from lakestate.sinks.iceberg.catalog import IcebergCatalog
from lakestate.sinks.iceberg.sink import IcebergSink
from lakestate.sinks.partitioning.event_time import EventTime
from lakestate.sinks.rolling import Roll
from lakestate.sinks.sink import Sink, SinkCommitter, SinkContext, SinkWriter

__all__ = [
    "EventTime",
    "IcebergCatalog",
    "IcebergSink",
    "JsonLinesSink",
    "ParquetSink",
    "Roll",
    "Sink",
    "SinkCommitter",
    "SinkContext",
    "SinkWriter",
]
