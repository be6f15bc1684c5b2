"""Durable, open state for streaming operators on Spark."""

from lakestate.config import RetryPolicy, StoreConfig
from lakestate.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    IncompatibleStateError,
    InvalidInputError,
    LakestateError,
    NotFoundError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from lakestate.protocol.values import Epoch, Generation, TaskInfo

__version__ = "0.1.0"

__all__ = [
    "ConflictError",
    "CorruptionError",
    "Epoch",
    "FencedError",
    "Generation",
    "IncompatibleStateError",
    "InvalidInputError",
    "LakestateError",
    "NotFoundError",
    "OutcomeUnknownError",
    "RetryPolicy",
    "StorageUnavailableError",
    "StoreConfig",
    "TaskInfo",
]
