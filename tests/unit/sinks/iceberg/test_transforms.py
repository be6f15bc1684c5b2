"""Partition transforms of whole columns agree with pyiceberg's, and values survive as folder names."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakestate.errors import InvalidInputError
from lakestate.sinks.iceberg.partition_values import PartitionField, distinct_values
from lakestate.sinks.iceberg.transforms import apply_transform

TEXTS = ["", "a", "ab", "abc", "abcd", "abcde", "München 東京 🚀", "x" * 77, None]
INTEGERS = [0, 1, -1, 34, 2**31 - 1, -(2**31), 12345, None]
LONGS = [*INTEGERS, 2**63 - 1, -(2**63), 10**15]
DECIMALS = [
    Decimal("14.20"),
    Decimal("-0.01"),
    Decimal("0.00"),
    Decimal("-128.00"),
    Decimal("99999.99"),
    None,
]
LARGE = [Decimal(10**37 + 7), Decimal(-(10**37) - 7), None]
DATES = [date(2017, 11, 16), date(1969, 12, 31), date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31), None]
TIMES = [
    datetime(2017, 11, 16, 22, 31, 8, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(1969, 1, 1),
    datetime(1970, 1, 1),
    datetime(2200, 2, 28, 1),
    None,
]
ZONED = [None if each is None else each.replace(tzinfo=UTC) for each in TIMES]
BYTES = [b"", b"\x00\x01\x02\x03\xff", b"abcd", None]
UUIDS = [UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, UUID(int=0).bytes, None]
CLOCK = [time(22, 31, 8, 1), time(0), None]

COLUMNS: dict[str, tuple[IcebergType, list[Any]]] = {
    "string": (StringType(), TEXTS),
    "int": (IntegerType(), INTEGERS),
    "long": (LongType(), LONGS),
    "decimal": (DecimalType(9, 2), DECIMALS),
    "large decimal": (DecimalType(38, 0), LARGE),
    "date": (DateType(), DATES),
    "timestamp": (TimestampType(), TIMES),
    "timestamptz": (TimestamptzType(), ZONED),
    "binary": (BinaryType(), BYTES),
    "fixed": (FixedType(4), [b"abcd", b"\x00\xff\x00\x80", None]),
    "uuid": (UUIDType(), UUIDS),
    "time": (TimeType(), CLOCK),
    "boolean": (BooleanType(), [True, False, None]),
    "double": (DoubleType(), [0.1, -0.0, 1e300, float("inf"), None]),
}
TRANSFORMS = {
    "bucket[16]": ("string", "int", "long", "decimal", "date", "timestamp", "timestamptz", "binary", "fixed"),
    "bucket[1000]": ("uuid", "time", "large decimal", "string"),
    "truncate[4]": ("string", "int", "long", "decimal", "binary"),
    "truncate[100]": ("int", "long", "large decimal"),
    "year": ("date", "timestamp", "timestamptz"),
    "month": ("date", "timestamp", "timestamptz"),
    "day": ("date", "timestamp", "timestamptz"),
    "hour": ("timestamp", "timestamptz"),
    "identity": tuple(COLUMNS),
}
CASES = [(transform, column) for transform, columns in TRANSFORMS.items() for column in columns]


def column_of(name: str) -> tuple[IcebergType, pa.Array, list[Any]]:
    iceberg_type, values = COLUMNS[name]
    if name == "large decimal":
        return iceberg_type, pa.array(values, pa.decimal128(38, 0)), values
    return iceberg_type, pa.array(values, schema_to_pyarrow(iceberg_type)), values


def expected_value(transform: str, iceberg_type: IcebergType, value: Any) -> Any:
    """What pyiceberg makes of a value, as a manifest holds it."""
    from pyiceberg.partitioning import _to_partition_representation

    if value is None:
        return None
    plain = _to_partition_representation(iceberg_type, value)
    return parse_transform(transform).transform(iceberg_type)(plain)


@pytest.mark.parametrize(("transform", "column"), CASES)
def test_a_transformed_column_is_what_pyiceberg_makes_of_each_value(transform: str, column: str) -> None:
    iceberg_type, array, values = column_of(column)
    field = PartitionField("part", column, transform, array.type)
    indices, distinct = distinct_values(apply_transform(array, transform))
    folders = [field.folder(distinct[number]) for number in indices.to_pylist()]
    found = [field.value(folder) for folder in folders]
    expected = [expected_value(transform, iceberg_type, value) for value in values]
    if transform.startswith("truncate") and column in ("int", "long"):
        # pyiceberg's numbers are not bounded; ours wrap as those of all other writers do.
        half = 2**31 if column == "int" else 2**63
        expected = [None if each is None else (each + half) % (2 * half) - half for each in expected]
    assert found == expected


@pytest.mark.parametrize("column", ["string", "binary", "fixed", "long"])
def test_a_slice_of_a_column_is_transformed_as_the_rest_is(column: str) -> None:
    _, array, _ = column_of(column)
    whole = apply_transform(array, "bucket[16]").to_pylist()
    assert apply_transform(array.slice(2), "bucket[16]").to_pylist() == whole[2:]
    assert apply_transform(array.slice(0, 0), "bucket[16]").to_pylist() == []


def test_the_periods_of_a_time_are_spelled_for_people() -> None:
    moment = pa.array([datetime(2017, 12, 1, 10, 30, tzinfo=UTC)])
    folders = {}
    for transform in ("year", "month", "day", "hour"):
        field = PartitionField(f"at_{transform}", "at", transform, moment.type)
        _, (value,) = distinct_values(apply_transform(moment, transform))
        folders[transform] = field.folder(value)
    assert folders == {
        "year": "at_year=2017",
        "month": "at_month=2017-12",
        "day": "at_day=2017-12-01",
        "hour": "at_hour=2017-12-01T10",
    }


@pytest.mark.parametrize("value", ["", "null", "__HIVE_DEFAULT_PARTITION__", "a/b", "..", "%2F", "=", "é\n"])
def test_no_two_values_have_one_folder(value: str) -> None:
    field = PartitionField("k", "k", "identity", pa.large_string())
    assert field.value(field.folder(value)) == value
    assert field.folder(value) != field.folder(None)
    assert "/" not in field.folder(value)


def test_a_value_too_long_for_a_path_is_refused_with_advice() -> None:
    field = PartitionField("k", "k", "identity", pa.large_string())
    with pytest.raises(InvalidInputError, match=r"truncate\(N, k\)"):
        field.folder("x" * 300)


def test_an_unknown_transform_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="zorder"):
        apply_transform(pa.array([1]), "zorder[3]")
