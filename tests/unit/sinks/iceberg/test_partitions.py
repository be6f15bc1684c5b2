"""Partitions of columns with odd names, columns that rows lack, and values at the edge of their type."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg.avro.file
import pytest
from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField
from tests.support.sinks.iceberg_job import NEVER, Warehouse, one_batch

from lakestate.errors import InvalidInputError
from lakestate.sinks.iceberg.partition_values import PartitionField
from lakestate.sinks.iceberg.partitioning import IcebergPartitioning
from lakestate.sinks.iceberg.table import partition_fields

MERGED = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "warehouse")


def partitions(warehouse: Warehouse) -> list[Any]:
    return [task.file.partition[0] for task in warehouse.table().scan().plan_files()]


@pytest.mark.parametrize(
    ("column", "by", "values", "expected"),
    [
        ("dropped", "dropped", [2, 5], [2, 5]),
        ("dropped_reason", "dropped_reason", ["lost", "late"], ["late", "lost"]),
        ("is_dropped", "is_dropped", [True, False], [False, True]),
        ("dropped column 2", "dropped column 2", [7, 8], [7, 8]),
        ("time_dropped", "truncate(10, time_dropped)", [12, 25], [10, 20]),
    ],
)
def test_a_column_may_be_called_dropped(
    warehouse: Warehouse, column: str, by: str, values: list[Any], expected: list[Any]
) -> None:
    rows = pa.record_batch({"row": [1, 2], column: values})
    warehouse.job(one_batch(rows), rows.schema, partition_by=[by], roll=NEVER).run_to(2)
    assert sorted(partitions(warehouse)) == expected
    assert warehouse.rows() == [1, 1, 2, 2]


def test_rows_have_no_value_of_a_column_that_the_table_dropped() -> None:
    schema = Schema(NestedField(1, "row", LongType(), required=False))
    spec = PartitionSpec(
        SpecField(7, 1000, IdentityTransform(), "gone"), SpecField(8, 1001, DayTransform(), "gone_day")
    )
    fields = partition_fields(spec, schema)
    assert fields == (
        PartitionField("gone", None, "identity", pa.null()),
        PartitionField("gone_day", None, "day", pa.null()),
    )
    rows = pa.record_batch({"row": [1, 2]})
    partitioning = IcebergPartitioning(("gone", "gone_day"), fields, rows.schema)
    none = "__HIVE_DEFAULT_PARTITION__"
    assert partitioning.split(rows, None) == [(f"gone={none}/gone_day={none}", rows)]
    assert partitioning.event_time is None


@pytest.mark.parametrize(
    "by", ["x", "year(x)", "month(x)", "day(x)", "hour(x)", "bucket(4, x)", "truncate(4, n)", "day(s.at)"]
)
def test_a_partition_of_an_optional_column_that_rows_lack_is_null(warehouse: Warehouse, by: str) -> None:
    at = pa.timestamp("us", "UTC")
    columns = [("row", pa.int64()), ("x", at), ("n", pa.int32()), ("s", pa.struct([("at", at)]))]
    warehouse.sink(partition_by=[by]).check(pa.schema(columns))
    rows = pa.record_batch({"row": [1, 2]})
    warehouse.job(one_batch(rows), rows.schema, roll=NEVER).run_to(2)
    assert partitions(warehouse) == [None]
    assert warehouse.rows() == [1, 1, 2, 2]


def test_a_decimal_that_truncates_to_too_many_digits_is_refused_before_the_epoch(
    warehouse: Warehouse,
) -> None:
    column = pa.array([Decimal("99.99"), Decimal("-99.99"), None], pa.decimal128(4, 2))
    rows = pa.record_batch({"row": [1, 2, 3], "x": column})
    job = warehouse.job(one_batch(rows), rows.schema, partition_by=["truncate(50, x)"])
    with pytest.raises(InvalidInputError, match=r"more digits than its column: x; found -100\.00"):
        job.attempt(0).finish()


def test_decimals_are_truncated_downwards_as_far_as_the_column_goes(warehouse: Warehouse) -> None:
    values = [Decimal("99.99"), Decimal("-99.50"), Decimal("-0.01"), Decimal("0.00"), None]
    rows = pa.record_batch({"row": list(range(5)), "x": pa.array(values, pa.decimal128(4, 2))})
    warehouse.job(one_batch(rows), rows.schema, partition_by=["truncate(50, x)"]).run_to(1)
    expected = [Decimal("99.50"), Decimal("-99.50"), Decimal("-0.50"), Decimal("0.00"), None]
    assert sorted(partitions(warehouse), key=str) == sorted(expected, key=str)


def test_merging_manifests_does_not_round_partitions_by_double(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.record_batch({"row": [1, 2], "x": [1.1, -1e300]})
    warehouse.job(one_batch(rows), rows.schema, partition_by=["x"], properties=MERGED).run_to(3)
    # pyiceberg's other decoder: the usual one rounds what it reads.
    monkeypatch.setattr(pyiceberg.avro.file, "new_decoder", StreamingBinaryDecoder)
    table = warehouse.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    entries = [
        entry for each in snapshot.manifests(table.io) for entry in each.fetch_manifest_entry(table.io)
    ]
    assert sorted(entry.data_file.partition[0] for entry in entries) == [-1e300] * 3 + [1.1] * 3
