"""Durable, open state for streaming operators on Spark.

Every public name is imported when it is first used, so that `import lakestate` is fast and works
without the libraries that only some names need, such as Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakestate.config import RetryPolicy, StoreConfig
    from lakestate.coordinator.commit import OperatorCommit
    from lakestate.coordinator.parquet_backend import ParquetBackend
    from lakestate.errors import (
        ClockError,
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
        StopTimeoutError,
        StorageUnavailableError,
        VisibleOutputError,
    )
    from lakestate.inspection import (
        Checkpoint,
        EpochInfo,
        EpochState,
        FileInfo,
        JobInfo,
        JobState,
        KeyVersion,
        OperatorInfo,
        StateChanges,
        StateTable,
        TableHistory,
        TableInfo,
        open,  # noqa: A004
        read_state,
    )
    from lakestate.inspection.exports import Export
    from lakestate.observability.file_events import FileEvent, FileEventKind
    from lakestate.observability.listeners import FileListener
    from lakestate.observability.progress import EpochListener, EpochProgress
    from lakestate.observability.progress_line import ProgressLine
    from lakestate.observability.prometheus import PrometheusMetrics
    from lakestate.operators.aggregates.aggregate import Aggregate
    from lakestate.operators.aggregates.collected import collect_list, collect_set, count_distinct
    from lakestate.operators.aggregates.moments import stddev, variance
    from lakestate.operators.aggregates.ordered import first, last, max_by, min_by
    from lakestate.operators.aggregates.plain import (
        bool_and,
        bool_or,
        count,
        max,  # noqa: A004
        mean,
        min,  # noqa: A004
        sum,  # noqa: A004
    )
    from lakestate.operators.aggregates.sketches import approx_count_distinct, approx_quantiles
    from lakestate.operators.context import OperatorContext
    from lakestate.operators.keyed_function.function import KeyedFunction
    from lakestate.operators.keyed_function.state import KeyState, ListState, MapState, ValueState
    from lakestate.operators.operator import Operator, TwoInputOperator
    from lakestate.operators.timers.table import Timers
    from lakestate.operators.timers.view import TimersView
    from lakestate.operators.windows.specs import Hopping, Session, Tumbling
    from lakestate.protocol.compaction import CompactionPolicy
    from lakestate.protocol.metadata import CommitPart
    from lakestate.protocol.retention import RetentionPolicy
    from lakestate.protocol.table_types import TableType
    from lakestate.protocol.values import Epoch, Generation, TaskInfo
    from lakestate.repair import fork
    from lakestate.sinks.delta.sink import DeltaSink
    from lakestate.sinks.files.sink import FileSink
    from lakestate.sinks.formats.appending_writer import AppendingWriter
    from lakestate.sinks.formats.format import FileFormat
    from lakestate.sinks.formats.json_lines.sink import JsonLinesSink
    from lakestate.sinks.formats.parquet.sink import ParquetSink
    from lakestate.sinks.formats.registry import register_file_format
    from lakestate.sinks.iceberg.catalog import IcebergCatalog
    from lakestate.sinks.iceberg.maintenance.settings import Maintenance
    from lakestate.sinks.iceberg.sink import IcebergSink
    from lakestate.sinks.kafka.sink import KafkaSink
    from lakestate.sinks.postgres.sink import PostgresSink
    from lakestate.sinks.rolling import Roll
    from lakestate.spark.data_source.commit import finish_files, take_over_output
    from lakestate.spark.data_source.source import LakestateDataSource, register, write_stream
    from lakestate.spark.deploy_plan import DeployPlan, plan
    from lakestate.spark.diagnosis.doctor import Diagnosis, doctor
    from lakestate.spark.dry_run import PipelineDryRun
    from lakestate.spark.pipeline import Pipeline
    from lakestate.spark.query import PipelineQuery
    from lakestate.tables.contract import Table
    from lakestate.tables.dry_run import DryRunReport, dry_run
    from lakestate.tables.global_keyed.table import GlobalKeyedTable
    from lakestate.tables.global_keyed.view import GlobalKeyedView
    from lakestate.tables.keyed.table import KeyedTable, Ttl
    from lakestate.tables.keyed.view import KeyedView
    from lakestate.tables.manager import TableManager
    from lakestate.tables.migration.migrations import (
        ArrowMigration,
        ColumnChanges,
        MigratableState,
        Migration,
        RowMigration,
    )
    from lakestate.tables.registry import register_table_type
    from lakestate.tables.time_key.table import TimeKeyTable
    from lakestate.tables.time_key.view import TimeKeyView
    from lakestate.verification import CacheReport, VerificationReport, verify, verify_cache

__version__ = "0.1.0"

__all__ = [
    "Aggregate",
    "AppendingWriter",
    "ArrowMigration",
    "CacheReport",
    "Checkpoint",
    "ClockError",
    "ColumnChanges",
    "CommitPart",
    "CompactionPolicy",
    "ConflictError",
    "CorruptionError",
    "DeltaSink",
    "DeployPlan",
    "Diagnosis",
    "DryRunReport",
    "Epoch",
    "EpochInfo",
    "EpochListener",
    "EpochProgress",
    "EpochState",
    "Export",
    "FencedError",
    "FileEvent",
    "FileEventKind",
    "FileFormat",
    "FileInfo",
    "FileListener",
    "FileSink",
    "Generation",
    "GlobalKeyedTable",
    "GlobalKeyedView",
    "Hopping",
    "IcebergCatalog",
    "IcebergSink",
    "IncompatibleStateError",
    "InvalidInputError",
    "JobInfo",
    "JobState",
    "JsonLinesSink",
    "KafkaSink",
    "KeyState",
    "KeyVersion",
    "KeyedFunction",
    "KeyedTable",
    "KeyedView",
    "LakestateDataSource",
    "LakestateError",
    "ListState",
    "Maintenance",
    "MapState",
    "MigratableState",
    "Migration",
    "MissingExtraError",
    "NotFoundError",
    "Operator",
    "OperatorCommit",
    "OperatorContext",
    "OperatorError",
    "OperatorInfo",
    "OutcomeUnknownError",
    "ParquetBackend",
    "ParquetSink",
    "Pipeline",
    "PipelineDryRun",
    "PipelineQuery",
    "PostgresSink",
    "ProgressLine",
    "PrometheusMetrics",
    "RetentionPolicy",
    "RetryPolicy",
    "Roll",
    "RowMigration",
    "Session",
    "StateChanges",
    "StateTable",
    "StopTimeoutError",
    "StorageUnavailableError",
    "StoreConfig",
    "Table",
    "TableHistory",
    "TableInfo",
    "TableManager",
    "TableType",
    "TaskInfo",
    "TimeKeyTable",
    "TimeKeyView",
    "Timers",
    "TimersView",
    "Ttl",
    "Tumbling",
    "TwoInputOperator",
    "ValueState",
    "VerificationReport",
    "VisibleOutputError",
    "approx_count_distinct",
    "approx_quantiles",
    "bool_and",
    "bool_or",
    "collect_list",
    "collect_set",
    "count",
    "count_distinct",
    "doctor",
    "dry_run",
    "finish_files",
    "first",
    "fork",
    "last",
    "max",
    "max_by",
    "mean",
    "min",
    "min_by",
    "open",
    "plan",
    "read_state",
    "register",
    "register_file_format",
    "register_table_type",
    "stddev",
    "sum",
    "take_over_output",
    "variance",
    "verify",
    "verify_cache",
    "write_stream",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    from importlib import import_module

    from lakestate.public_names import MODULES

    if name not in MODULES:
        raise AttributeError(f"module 'lakestate' has no attribute {name!r}")
    try:
        found: object = getattr(import_module(MODULES[name]), name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not missing.name.startswith("pyspark"):
            raise
        from lakestate.errors import MissingExtraError

        raise MissingExtraError(
            f"{name} needs Spark", action='install it with: pip install "lakestate[spark]"'
        ) from missing
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The public names, also those that are not imported yet."""
    return [*__all__, "__doc__", "__version__"]
