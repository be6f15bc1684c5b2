"""Durable, open state for streaming operators on Spark."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakestate.config import RetryPolicy, StoreConfig
from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    IncompatibleStateError,
    InvalidInputError,
    LakestateError,
    MissingExtraError,
    NotFoundError,
    OperatorError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from lakestate.observability.progress import EpochListener, EpochProgress
from lakestate.operators.context import OperatorContext
from lakestate.operators.operator import Operator, TwoInputOperator
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.retention import RetentionPolicy
from lakestate.protocol.values import Epoch, Generation, TaskInfo
from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.formats.appending_writer import AppendingWriter
from lakestate.sinks.formats.format import FileFormat
from lakestate.sinks.formats.json_lines.sink import JsonLinesSink
from lakestate.sinks.formats.parquet.sink import ParquetSink
from lakestate.sinks.formats.registry import register_file_format
from lakestate.sinks.iceberg.catalog import IcebergCatalog
from lakestate.sinks.iceberg.sink import IcebergSink
from lakestate.sinks.rolling import Roll
from lakestate.tables.dry_run import DryRunReport, dry_run
from lakestate.tables.global_keyed.table import GlobalKeyedTable
from lakestate.tables.keyed.table import KeyedTable, Ttl
from lakestate.tables.manager import TableManager
from lakestate.tables.migration.migrations import (
    ArrowMigration,
    ColumnChanges,
    MigratableState,
    Migration,
    RowMigration,
)
from lakestate.tables.time_key.table import TimeKeyTable
from lakestate.verification import CacheReport, VerificationReport, verify, verify_cache

if TYPE_CHECKING:
    from lakestate.observability.progress_line import ProgressLine
    from lakestate.observability.prometheus import PrometheusMetrics
    from lakestate.spark.data_source.commit import finish_files
    from lakestate.spark.data_source.source import LakestateDataSource, register, write_stream
    from lakestate.spark.pipeline import Pipeline
    from lakestate.spark.query import PipelineQuery

__version__ = "0.1.0"

_NEEDS_SPARK = {
    "LakestateDataSource": "lakestate.spark.data_source.source",
    "Pipeline": "lakestate.spark.pipeline",
    "PipelineQuery": "lakestate.spark.query",
    "ProgressLine": "lakestate.observability.progress_line",
    "PrometheusMetrics": "lakestate.observability.prometheus",
    "finish_files": "lakestate.spark.data_source.commit",
    "register": "lakestate.spark.data_source.source",
    "write_stream": "lakestate.spark.data_source.source",
}


def __getattr__(name: str) -> Any:
    """What needs Spark is imported when it is first used: the rest works without."""
    if name not in _NEEDS_SPARK:
        raise AttributeError(f"module 'lakestate' has no attribute {name!r}")
    try:
        return getattr(import_module(_NEEDS_SPARK[name]), name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not missing.name.startswith("pyspark"):
            raise
        raise MissingExtraError(
            f"{name} needs Spark", action='install it with: pip install "lakestate[spark]"'
        ) from missing


__all__ = [
    "AppendingWriter",
    "ArrowMigration",
    "CacheReport",
    "ColumnChanges",
    "CompactionPolicy",
    "ConflictError",
    "CorruptionError",
    "DryRunReport",
    "Epoch",
    "EpochListener",
    "EpochProgress",
    "FencedError",
    "FileFormat",
    "FileSink",
    "Generation",
    "GlobalKeyedTable",
    "IcebergCatalog",
    "IcebergSink",
    "IncompatibleStateError",
    "InvalidInputError",
    "JsonLinesSink",
    "KeyedTable",
    "LakestateDataSource",
    "LakestateError",
    "MigratableState",
    "Migration",
    "MissingExtraError",
    "NotFoundError",
    "Operator",
    "OperatorContext",
    "OperatorError",
    "OutcomeUnknownError",
    "ParquetBackend",
    "ParquetSink",
    "Pipeline",
    "PipelineQuery",
    "ProgressLine",
    "PrometheusMetrics",
    "RetentionPolicy",
    "RetryPolicy",
    "Roll",
    "RowMigration",
    "StorageUnavailableError",
    "StoreConfig",
    "TableManager",
    "TaskInfo",
    "TimeKeyTable",
    "Ttl",
    "TwoInputOperator",
    "VerificationReport",
    "dry_run",
    "finish_files",
    "register",
    "register_file_format",
    "verify",
    "verify_cache",
    "write_stream",
]
