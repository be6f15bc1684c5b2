"""Sinks: exactly-once output that stays open across epochs.

- `sink.py` is the contract with the runtime, for those who write a sink of their own.
- `files/` keeps files open, uploads them, and makes them visible after their epoch is published.
- `formats/` turns rows into bytes: one folder per file format.
- `partitioning/` decides which directory each row goes to, `rolling.py` when a file ends.
- `iceberg/` and `delta/` append finished files to Iceberg and Delta tables, or merge rows by key;
  `table_format/` is what they share.
- `postgres/` delivers rows to tables of PostgreSQL.
- `kafka/` produces messages in transactions.
- `staged/` keeps the rows of an epoch in the job until it is published, and then delivers them.
- `keyed_rows.py` is what every sink with a `key` takes and refuses.

A new file format is a folder in `formats/` and a line in its registry. A new table format is a folder
here: `FileSink` writes its data files, and its committer makes them whole before it appends them. So is a
system that takes rows and not files: `StagedSink` stages its rows.

May import `tables` and everything below it; neither operators nor Spark.
"""

from lakestate.sinks.delta.sink import DeltaSink
from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.formats.appending_writer import AppendingWriter
from lakestate.sinks.formats.format import BatchBufferingWriter, FileFormat
from lakestate.sinks.formats.json_lines.format import JsonLinesFormat
from lakestate.sinks.formats.json_lines.sink import JsonLinesSink
from lakestate.sinks.formats.parquet.format import ParquetFormat
from lakestate.sinks.formats.parquet.sink import ParquetSink
from lakestate.sinks.formats.registry import register_file_format
from lakestate.sinks.formats.statistics import FileStatistics
from lakestate.sinks.formats.writer_state import WriterState
from lakestate.sinks.iceberg.catalog import IcebergCatalog
from lakestate.sinks.iceberg.maintenance.settings import Maintenance
from lakestate.sinks.iceberg.sink import IcebergSink
from lakestate.sinks.kafka.sink import KafkaSink
from lakestate.sinks.partitioning.event_time import EventTime
from lakestate.sinks.postgres.sink import PostgresSink
from lakestate.sinks.rolling import Roll
from lakestate.sinks.sink import Sink, SinkCommitter, SinkContext, SinkWriter
from lakestate.sinks.staged import StagedEpoch, StagedPart, StagedSink

__all__ = [
    "AppendingWriter",
    "BatchBufferingWriter",
    "DeltaSink",
    "EventTime",
    "FileFormat",
    "FileSink",
    "FileStatistics",
    "IcebergCatalog",
    "IcebergSink",
    "JsonLinesFormat",
    "JsonLinesSink",
    "KafkaSink",
    "Maintenance",
    "ParquetFormat",
    "ParquetSink",
    "PostgresSink",
    "Roll",
    "Sink",
    "SinkCommitter",
    "SinkContext",
    "SinkWriter",
    "StagedEpoch",
    "StagedPart",
    "StagedSink",
    "WriterState",
    "register_file_format",
]
