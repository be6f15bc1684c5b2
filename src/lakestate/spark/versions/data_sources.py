"""Python data sources as Spark's versions have them: none in 3.5, and more with every version since 4.0.

Importing this module on 3.5 fails with an error that says what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyspark

from lakestate.spark.versions.supported import needs_version_error

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        InputPartition,
        WriterCommitMessage,
    )
except ModuleNotFoundError as missing:
    raise needs_version_error(
        'format("lakestate")',
        "4.0",
        pyspark.__version__,
        "write with a Pipeline, and read with ls.open or the command line, which need no newer Spark",
    ) from missing

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

    class DataSourceStreamArrowWriter(  # type: ignore[no-redef, misc]
        DataSourceStreamWriter, DataSourceArrowWriter
    ):
        """Gets Arrow batches in a stream on Spark 4.0, which looks only for the second class."""


try:
    from pyspark.sql.streaming.datasource import (
        ReadLimit,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ModuleNotFoundError:
    _HAS_READ_LIMITS = False
    ReadLimit = ReadMaxFiles = ReadMaxRows = SupportsTriggerAvailableNow = object  # type: ignore[misc, assignment]
else:
    _HAS_READ_LIMITS = True

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

__all__ = [
    "DataSource",
    "DataSourceReader",
    "DataSourceStreamArrowWriter",
    "DataSourceStreamReader",
    "InputPartition",
    "ReadLimit",
    "ReadMaxFiles",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "WriterCommitMessage",
    "allowed_values",
    "require_read_limits",
]


def require_read_limits(what: str, action: str) -> None:
    """Refuse a stream that says how much a micro-batch reads: before 4.2 it is not told where one begins."""
    if not _HAS_READ_LIMITS:
        raise needs_version_error(what, "4.2", pyspark.__version__, action)


def allowed_values(condition: Filter) -> tuple[str, list[Any]] | None:
    """The column of a condition and the values that it allows, if it is so simple.

    Spark passes conditions on since 4.1.
    """
    from pyspark.sql.datasource import EqualNullSafe, EqualTo, In, IsNull

    match condition:
        case EqualTo((column,), value) | EqualNullSafe((column,), value):
            return column, [value]
        case In((column,), values):
            return column, list(values)
        case IsNull((column,)):
            return column, [None]
    return None
