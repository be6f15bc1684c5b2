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

_MODULES = {
    "Aggregate": "lakestate.operators.aggregates.aggregate",
    "AppendingWriter": "lakestate.sinks.formats.appending_writer",
    "ArrowMigration": "lakestate.tables.migration.migrations",
    "CacheReport": "lakestate.verification",
    "Checkpoint": "lakestate.inspection",
    "ClockError": "lakestate.errors",
    "ColumnChanges": "lakestate.tables.migration.migrations",
    "CommitPart": "lakestate.protocol.metadata",
    "CompactionPolicy": "lakestate.protocol.compaction",
    "ConflictError": "lakestate.errors",
    "CorruptionError": "lakestate.errors",
    "DeltaSink": "lakestate.sinks.delta.sink",
    "DeployPlan": "lakestate.spark.deploy_plan",
    "Diagnosis": "lakestate.spark.diagnosis.doctor",
    "DryRunReport": "lakestate.tables.dry_run",
    "Epoch": "lakestate.protocol.values",
    "EpochInfo": "lakestate.inspection",
    "EpochListener": "lakestate.observability.progress",
    "EpochProgress": "lakestate.observability.progress",
    "EpochState": "lakestate.inspection",
    "Export": "lakestate.inspection.exports",
    "FencedError": "lakestate.errors",
    "FileEvent": "lakestate.observability.file_events",
    "FileEventKind": "lakestate.observability.file_events",
    "FileFormat": "lakestate.sinks.formats.format",
    "FileInfo": "lakestate.inspection",
    "FileListener": "lakestate.observability.listeners",
    "FileSink": "lakestate.sinks.files.sink",
    "Generation": "lakestate.protocol.values",
    "GlobalKeyedTable": "lakestate.tables.global_keyed.table",
    "GlobalKeyedView": "lakestate.tables.global_keyed.view",
    "Hopping": "lakestate.operators.windows.specs",
    "IcebergCatalog": "lakestate.sinks.iceberg.catalog",
    "IcebergSink": "lakestate.sinks.iceberg.sink",
    "IncompatibleStateError": "lakestate.errors",
    "InvalidInputError": "lakestate.errors",
    "JobInfo": "lakestate.inspection",
    "JobState": "lakestate.inspection",
    "JsonLinesSink": "lakestate.sinks.formats.json_lines.sink",
    "KeyState": "lakestate.operators.keyed_function.state",
    "KeyVersion": "lakestate.inspection",
    "KeyedFunction": "lakestate.operators.keyed_function.function",
    "KeyedTable": "lakestate.tables.keyed.table",
    "KeyedView": "lakestate.tables.keyed.view",
    "LakestateDataSource": "lakestate.spark.data_source.source",
    "LakestateError": "lakestate.errors",
    "ListState": "lakestate.operators.keyed_function.state",
    "Maintenance": "lakestate.sinks.iceberg.maintenance.settings",
    "MapState": "lakestate.operators.keyed_function.state",
    "MigratableState": "lakestate.tables.migration.migrations",
    "Migration": "lakestate.tables.migration.migrations",
    "MissingExtraError": "lakestate.errors",
    "NotFoundError": "lakestate.errors",
    "Operator": "lakestate.operators.operator",
    "OperatorCommit": "lakestate.coordinator.commit",
    "OperatorContext": "lakestate.operators.context",
    "OperatorError": "lakestate.errors",
    "OperatorInfo": "lakestate.inspection",
    "OutcomeUnknownError": "lakestate.errors",
    "ParquetBackend": "lakestate.coordinator.parquet_backend",
    "ParquetSink": "lakestate.sinks.formats.parquet.sink",
    "PostgresSink": "lakestate.sinks.postgres.sink",
    "Pipeline": "lakestate.spark.pipeline",
    "PipelineDryRun": "lakestate.spark.dry_run",
    "PipelineQuery": "lakestate.spark.query",
    "ProgressLine": "lakestate.observability.progress_line",
    "PrometheusMetrics": "lakestate.observability.prometheus",
    "RetentionPolicy": "lakestate.protocol.retention",
    "RetryPolicy": "lakestate.config",
    "Roll": "lakestate.sinks.rolling",
    "RowMigration": "lakestate.tables.migration.migrations",
    "Session": "lakestate.operators.windows.specs",
    "StateChanges": "lakestate.inspection",
    "StateTable": "lakestate.inspection",
    "StopTimeoutError": "lakestate.errors",
    "StorageUnavailableError": "lakestate.errors",
    "StoreConfig": "lakestate.config",
    "Table": "lakestate.tables.contract",
    "TableHistory": "lakestate.inspection",
    "TableInfo": "lakestate.inspection",
    "TableManager": "lakestate.tables.manager",
    "TableType": "lakestate.protocol.table_types",
    "TaskInfo": "lakestate.protocol.values",
    "TimeKeyTable": "lakestate.tables.time_key.table",
    "TimeKeyView": "lakestate.tables.time_key.view",
    "Timers": "lakestate.operators.timers.table",
    "TimersView": "lakestate.operators.timers.view",
    "Ttl": "lakestate.tables.keyed.table",
    "Tumbling": "lakestate.operators.windows.specs",
    "TwoInputOperator": "lakestate.operators.operator",
    "ValueState": "lakestate.operators.keyed_function.state",
    "VerificationReport": "lakestate.verification",
    "VisibleOutputError": "lakestate.errors",
    "approx_count_distinct": "lakestate.operators.aggregates.sketches",
    "approx_quantiles": "lakestate.operators.aggregates.sketches",
    "bool_and": "lakestate.operators.aggregates.plain",
    "bool_or": "lakestate.operators.aggregates.plain",
    "collect_list": "lakestate.operators.aggregates.collected",
    "collect_set": "lakestate.operators.aggregates.collected",
    "count": "lakestate.operators.aggregates.plain",
    "count_distinct": "lakestate.operators.aggregates.collected",
    "doctor": "lakestate.spark.diagnosis.doctor",
    "dry_run": "lakestate.tables.dry_run",
    "finish_files": "lakestate.spark.data_source.commit",
    "first": "lakestate.operators.aggregates.ordered",
    "fork": "lakestate.repair",
    "last": "lakestate.operators.aggregates.ordered",
    "max": "lakestate.operators.aggregates.plain",
    "max_by": "lakestate.operators.aggregates.ordered",
    "mean": "lakestate.operators.aggregates.plain",
    "min": "lakestate.operators.aggregates.plain",
    "min_by": "lakestate.operators.aggregates.ordered",
    "open": "lakestate.inspection",
    "plan": "lakestate.spark.deploy_plan",
    "read_state": "lakestate.inspection",
    "register": "lakestate.spark.data_source.source",
    "register_file_format": "lakestate.sinks.formats.registry",
    "register_table_type": "lakestate.tables.registry",
    "stddev": "lakestate.operators.aggregates.moments",
    "sum": "lakestate.operators.aggregates.plain",
    "take_over_output": "lakestate.spark.data_source.commit",
    "variance": "lakestate.operators.aggregates.moments",
    "verify": "lakestate.verification",
    "verify_cache": "lakestate.verification",
    "write_stream": "lakestate.spark.data_source.source",
}
"""Where each public name is defined. The imports above tell type checkers the same."""

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
    if name not in _MODULES:
        raise AttributeError(f"module 'lakestate' has no attribute {name!r}")
    from importlib import import_module

    try:
        found: object = getattr(import_module(_MODULES[name]), name)
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
