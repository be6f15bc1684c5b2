"""Partition values of a Delta table: the folders of files, and the text in the table's log. Pure.

Folders are named as in Hive. Readers take the values from the log; the committer takes them from the
path of a file, so each value has one spelling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import CorruptionError, InvalidInputError
from lakestate.sinks.partitioning.partitioner import Partitioning
from lakestate.sinks.partitioning.paths import DEFAULT_PARTITION
from lakestate.sinks.table_format.rows import conform_rows

_FRACTION_DIGITS = 6
_DAY_US = 86_400_000_000
_DAYS_MIN, _DAYS_MAX = -719_162, 2_932_896
"""The first day of year 1 and the last of year 9999: others have no spelling that all readers know."""


@dataclass(frozen=True, slots=True)
class DeltaPartitioning(Partitioning):
    """By the partition columns of a table, of rows that are brought into the table's types first."""

    rows: pa.Schema = field(default_factory=lambda: pa.schema([]))
    """The columns of the table that rows have, those of partitions included."""

    def check(self, schema: pa.Schema, event_time: str | None) -> None:
        """Nothing to do: the table's columns have been compared already."""

    def split(self, batch: pa.RecordBatch, event_time: str | None) -> list[tuple[str, pa.RecordBatch]]:
        """The rows of each partition in the table's types, in the order they came."""
        rows = conform_rows(batch, self.rows)
        check_partition_values(rows, self.columns)
        return Partitioning.split(self, rows, event_time)


def check_partition_values(rows: pa.RecordBatch, by: Sequence[str]) -> None:
    """Refuse values of partition columns that would be read as others."""
    for name in by:
        _check_values(name, rows.column(name), rows.schema.field(name))


def partition_values(path: str, fields: Sequence[pa.Field]) -> dict[str, str | None]:
    """The partition values of a file, as the table's log spells them.

    >>> at = pa.field("at", pa.timestamp("us", "UTC"))
    >>> partition_values("at=2024-01-01 10%3A00%3A00.5/part-0.parquet", [at])
    {'at': '2024-01-01T10:00:00.500000Z'}
    """
    folders = path.split("/")[:-1]
    if len(folders) != len(fields):
        raise CorruptionError(
            "a file is not in the folder of its partition",
            object_name=path,
            expected="/".join(f"{field.name}=…" for field in fields) or "no folder",
        )
    return {field.name: _value(folder, field, path) for folder, field in zip(folders, fields, strict=True)}


def _value(folder: str, column: pa.Field, path: str) -> str | None:
    name, _, shown = folder.partition("=")
    if unquote(name) != column.name:
        raise CorruptionError(
            "a file is not in the folder of its partition",
            object_name=path,
            found=folder,
            expected=f"{column.name}=…",
        )
    if shown == DEFAULT_PARTITION:
        return None
    text = unquote(shown)
    # Without the zone it would be read in that of the reader's session.
    return _utc_text(text) if pa.types.is_timestamp(column.type) and column.type.tz else text


def _utc_text(text: str) -> str:
    moment, _, fraction = text.partition(".")
    return f"{moment.replace(' ', 'T')}.{fraction.ljust(_FRACTION_DIGITS, '0')}Z"


def _check_values(name: str, column: pa.Array, expected: pa.Field) -> None:
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        _check_years(name, column)
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if is_text and not expected.nullable and pc.any(pc.equal(column, "")).as_py():
        raise InvalidInputError(
            "write to the table: a partition of the empty text is null, which the column cannot be",
            object_name=name,
            found="an empty text",
            action="replace it before the sink, or let the column be null in the table",
        )


def _check_years(name: str, column: pa.Array) -> None:
    in_day = pa.types.is_date(column.type)
    numbers = column.cast(pa.int32()).cast(pa.int64()) if in_day else column.cast(pa.int64())
    unit = 1 if in_day else _DAY_US
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is None or (
        bounds["min"] >= _DAYS_MIN * unit and bounds["max"] < (_DAYS_MAX + 1) * unit
    ):
        return
    raise InvalidInputError(
        "write to the table: a time is outside of the years that a partition can have",
        object_name=name,
        found=f"{bounds['min']} to {bounds['max']} {'days' if in_day else 'microseconds'} since 1970",
        expected="years 1 to 9999",
        action="correct it before the sink",
    )
