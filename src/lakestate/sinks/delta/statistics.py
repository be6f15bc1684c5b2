"""What the table's log says about the columns of a file, so that readers can skip it. Pure.

A bound is left out wherever a reader could draw a wrong conclusion from it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as is_type

from lakestate.sinks.formats.statistics import ColumnStatistics, FileStatistics

INDEXED_COLUMNS, STATISTICS_COLUMNS = "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns"
_INDEXED_COLUMNS_DEFAULT = 32
_TEXT_CHARS_MAX = 32
_LAST_CHARACTER = "\U0010ffff"
_DECIMAL_DIGITS_MAX = 15
"""Some readers parse a number in JSON as a double, which holds this many digits."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENCODER = msgspec.json.Encoder(decimal_format="number")


@dataclass(frozen=True, slots=True)
class StatisticsColumn:
    """A leaf column that has statistics: its place in structs, and its type."""

    place: tuple[str, ...]
    type: pa.DataType

    @property
    def path(self) -> str:
        """As Parquet names it."""
        return ".".join(self.place)


def statistics_columns(schema: pa.Schema, properties: Mapping[str, str | None]) -> list[StatisticsColumn]:
    """The columns of which a table wants statistics; `schema` is without those of partitions.

    >>> schema = pa.schema([("a", pa.int64()), ("s", pa.struct([("b", pa.int64()), ("c", pa.int64())]))])
    >>> [each.path for each in statistics_columns(schema, {"delta.dataSkippingNumIndexedCols": "2"})]
    ['a', 's.b']
    >>> [each.path for each in statistics_columns(schema, {"delta.dataSkippingStatsColumns": "s"})]
    ['s.b', 's.c']
    """
    leaves = [leaf for field in schema for leaf in _leaves((field.name,), field.type)]
    chosen = properties.get(STATISTICS_COLUMNS)
    if chosen:
        names = {name.strip().replace("`", "") for name in chosen.split(",")}
        wanted = [each for each in leaves if _is_within(each.place, names)]
    else:
        count = int(properties.get(INDEXED_COLUMNS) or _INDEXED_COLUMNS_DEFAULT)
        wanted = leaves if count < 0 else leaves[:count]
    paths = [each.path for each in leaves]
    # A dot may be part of a name, or lead into a struct.
    return [each for each in wanted if not is_type.is_nested(each.type) and paths.count(each.path) == 1]


def statistics_json(statistics: FileStatistics, columns: Collection[StatisticsColumn]) -> str:
    """The statistics of a file, for the entry that adds it to the table."""
    found = {each.path: each for each in statistics.columns}
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for column in columns:
        known = found.get(column.path)
        if known is None:
            continue
        lower, upper = _bounds(known, column.type)
        _put(lowest, column.place, lower)
        _put(highest, column.place, upper)
        _put(nulls, column.place, known.null_count)
    shown = {
        "numRecords": statistics.row_count,
        "minValues": lowest,
        "maxValues": highest,
        "nullCount": nulls,
    }
    return _ENCODER.encode(shown).decode()


def _leaves(place: tuple[str, ...], given: pa.DataType) -> Iterator[StatisticsColumn]:
    if is_type.is_struct(given):
        for field in given:
            yield from _leaves((*place, field.name), field.type)
    else:
        yield StatisticsColumn(place, given)


def _is_within(place: tuple[str, ...], names: Collection[str]) -> bool:
    return any(".".join(place[:length]) in names for length in range(1, len(place) + 1))


def _put(into: dict[str, Any], place: tuple[str, ...], value: Any) -> None:
    if value is not None:
        for name in place[:-1]:
            into = into.setdefault(name, {})
        into[place[-1]] = value


def _bounds(known: ColumnStatistics, given: pa.DataType) -> tuple[Any, Any]:
    lower, upper = known.lower, known.upper
    if lower is None or upper is None:
        return None, None
    if is_type.is_integer(given):
        return lower, upper
    if is_type.is_floating(given) and isinstance(lower, float):
        # Parquet's bounds leave out NaN, which is greater than all numbers in Spark.
        return (lower if math.isfinite(lower) else None), None
    if is_type.is_decimal(given):
        return _decimal(lower, given.scale), _decimal(upper, given.scale)
    if is_type.is_date(given):
        return _day(lower), _day(upper)
    if is_type.is_timestamp(given):
        zone = "Z" if given.tz else ""
        return _moment(lower, zone), _moment(upper, zone)
    if is_type.is_string(given) and isinstance(lower, bytes) and isinstance(upper, bytes):
        return _lower_text(lower), _upper_text(upper)
    return None, None


def _decimal(bound: Any, scale: int) -> Decimal | None:
    number = int.from_bytes(bound, "big", signed=True) if isinstance(bound, bytes) else int(bound)
    if len(str(abs(number))) > _DECIMAL_DIGITS_MAX:
        return None
    return Decimal(number).scaleb(-scale)


def _day(number: Any) -> str | None:
    try:
        return (_EPOCH + timedelta(days=number)).strftime("%Y-%m-%d").rjust(10, "0")
    except OverflowError:
        return None


def _moment(number: Any, zone: str) -> str | None:
    try:
        moment = _EPOCH + timedelta(microseconds=number)
    except OverflowError:
        return None
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}{zone}"


def _lower_text(bound: bytes) -> str | None:
    text = _text(bound)
    return None if text is None else text[:_TEXT_CHARS_MAX]


def _upper_text(bound: bytes) -> str | None:
    """A short text that is not less than the bound; None if there is none."""
    text = _text(bound)
    if text is None or len(text) <= _TEXT_CHARS_MAX:
        return text
    is_last = text[_TEXT_CHARS_MAX] == _LAST_CHARACTER
    return None if is_last else f"{text[:_TEXT_CHARS_MAX]}{_LAST_CHARACTER}"


def _text(bound: bytes) -> str | None:
    try:
        return bound.decode()
    except UnicodeDecodeError:
        return None
