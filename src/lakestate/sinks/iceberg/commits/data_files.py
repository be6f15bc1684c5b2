"""Finished files as entries of an Iceberg manifest, with statistics from their footers."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, PrimitiveType, StringType
from pyiceberg.utils.decimal import unscaled_to_decimal
from pyiceberg.utils.truncate import (
    truncate_upper_bound_binary_string,
    truncate_upper_bound_text_string,
)

from lakestate.errors import CorruptionError, IncompatibleStateError
from lakestate.sinks.files.pre_commit import FilePreCommit
from lakestate.sinks.formats.statistics import ColumnStatistics, FileStatistics
from lakestate.sinks.iceberg.table import partition_fields, schema_and_spec_of


def data_file(file: FilePreCommit, table: Table, location: str) -> DataFile:
    """The manifest entry of a file, as of the schema and partition spec that it was begun with."""
    try:
        return _entry(file, table, location)
    except (LookupError, ValueError, TypeError, ArithmeticError, struct.error) as cause:
        raise CorruptionError(
            "the pre-commit of a finished file does not fit the table",
            object_name=file.path,
            found=f"{type(cause).__name__}: {cause}"[:200],
        ) from cause


def _entry(file: FilePreCommit, table: Table, location: str) -> DataFile:
    schema_id, spec_id = schema_and_spec_of(file.format)
    schema = _require_id(table.schemas(), schema_id, "schema", file.path)
    spec = _require_id(table.specs(), spec_id, "partition spec", file.path)
    folders = file.path.split("/")[:-1]
    fields = partition_fields(spec, schema)
    values = [field.value(folder) for field, folder in zip(fields, folders, strict=True)]
    entry = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{location}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        file_size_in_bytes=file.size_bytes,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **statistics_of(file.statistics, schema, table.properties),
    )
    entry.spec_id = spec_id
    return entry


def statistics_of(
    statistics: FileStatistics, schema: Schema, properties: Mapping[str, str]
) -> dict[str, Any]:
    """What a manifest entry says about the columns, by field id, as the table wants it."""
    plan = compute_statistics_plan(schema, dict(properties))
    ids = parquet_path_to_id_mapping(schema)
    columns = {ids[column.path]: column for column in statistics.columns}
    counted = {key: each for key, each in columns.items() if plan[key].mode.type is not MetricModeTypes.NONE}
    bounds = {key: _bounds(each, plan[key]) for key, each in counted.items()}
    return {
        "record_count": statistics.row_count,
        "column_sizes": {key: each.size_bytes for key, each in columns.items()},
        "value_counts": {key: each.value_count for key, each in counted.items()},
        "null_value_counts": {
            key: each.null_count for key, each in counted.items() if each.null_count is not None
        },
        "nan_value_counts": {},
        "lower_bounds": {key: lower for key, (lower, _) in bounds.items() if lower is not None},
        "upper_bounds": {key: upper for key, (_, upper) in bounds.items() if upper is not None},
        "split_offsets": list(statistics.split_offsets),
    }


def _bounds(column: ColumnStatistics, plan: StatisticsCollector) -> tuple[bytes | None, bytes | None]:
    if plan.mode.type is MetricModeTypes.COUNTS or column.lower is None or column.upper is None:
        return None, None
    lower, upper = (_logical(bound, plan.iceberg_type) for bound in (column.lower, column.upper))
    if any(isinstance(bound, float) and math.isnan(bound) for bound in (lower, upper)):
        return None, None
    upper = _shorten_upper(upper, plan.mode)
    encoded = to_bytes(plan.iceberg_type, _shorten_lower(lower, plan.mode))
    return encoded, None if upper is None else to_bytes(plan.iceberg_type, upper)


def _logical(bound: Any, of_type: PrimitiveType) -> Any:
    """The value of a bound that Parquet stores."""
    if isinstance(of_type, DecimalType):
        number = int.from_bytes(bound, "big", signed=True) if isinstance(bound, bytes) else bound
        return unscaled_to_decimal(number, of_type.scale)
    if isinstance(of_type, StringType):
        return bound.decode() if isinstance(bound, bytes) else bound
    return bound


def _shorten_lower(bound: Any, mode: MetricsMode) -> Any:
    return bound if mode.length is None or not isinstance(bound, str | bytes) else bound[: mode.length]


def _shorten_upper(bound: Any, mode: MetricsMode) -> Any:
    """A short bound that is not less, or None if there is none."""
    if isinstance(bound, str):
        return truncate_upper_bound_text_string(bound, mode.length)
    if isinstance(bound, bytes) and mode.length is not None:
        return truncate_upper_bound_binary_string(bound, mode.length)
    return bound


def _require_id(known: Mapping[int, Any], number: int, what: str, path: str) -> Any:
    if number not in known:
        raise IncompatibleStateError(
            f"the table no longer has the {what} that a file was begun with",
            object_name=path,
            found=f"{what}s {', '.join(map(str, sorted(known)))}",
            expected=f"{what} {number}",
            action="do not remove schemas or partition specs while a job keeps files open",
        )
    return known[number]
