"""Sinks: exactly-once output that stays open across epochs.

What users name is here; `sink` is the contract with the runtime, for those who write their own.
"""

from lakestate.sinks.event_time import EventTime
from lakestate.sinks.iceberg_catalog import IcebergCatalog
from lakestate.sinks.iceberg_sink import IcebergSink
from lakestate.sinks.json_lines_sink import JsonLinesSink
from lakestate.sinks.parquet_sink import ParquetSink
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
