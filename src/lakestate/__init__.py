"""Durable, open state for streaming operators on Spark."""

from lakestate.config import RetryPolicy, StoreConfig
from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    IncompatibleStateError,
    InvalidInputError,
    LakestateError,
    NotFoundError,
    OperatorError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from lakestate.operators.context import OperatorContext
from lakestate.operators.operator import Operator, TwoInputOperator
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.retention import RetentionPolicy
from lakestate.protocol.values import Epoch, Generation, TaskInfo
from lakestate.tables.global_keyed import GlobalKeyedTable
from lakestate.tables.keyed import KeyedTable, Ttl
from lakestate.tables.manager import TableManager
from lakestate.tables.migration import ArrowMigration, ColumnChanges, MigratableState, Migration, RowMigration
from lakestate.tables.time_key import TimeKeyTable

__version__ = "0.1.0"

__all__ = [
    "ArrowMigration",
    "ColumnChanges",
    "CompactionPolicy",
    "ConflictError",
    "CorruptionError",
    "Epoch",
    "FencedError",
    "Generation",
    "GlobalKeyedTable",
    "IncompatibleStateError",
    "InvalidInputError",
    "KeyedTable",
    "LakestateError",
    "MigratableState",
    "Migration",
    "NotFoundError",
    "Operator",
    "OperatorContext",
    "OperatorError",
    "OutcomeUnknownError",
    "ParquetBackend",
    "RetentionPolicy",
    "RetryPolicy",
    "RowMigration",
    "StorageUnavailableError",
    "StoreConfig",
    "TableManager",
    "TaskInfo",
    "TimeKeyTable",
    "Ttl",
    "TwoInputOperator",
]
