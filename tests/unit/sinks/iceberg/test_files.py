"""The data files of an Iceberg sink: field ids, nested columns, statistics and partitions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import GreaterThan
from pyiceberg.manifest import DataFile
from pyiceberg.types import LongType
from tests.support.sinks.iceberg_job import NEVER, Warehouse, one_batch

NESTED = pa.schema(
    [
        ("row", pa.int64()),
        ("person", pa.struct([("name", pa.string()), ("tags", pa.list_(pa.string()))])),
        ("counts", pa.map_(pa.string(), pa.struct([("n", pa.int32())]))),
    ]
)
NESTED_ROW = {"row": 1, "person": {"name": "ada", "tags": ["x", "y"]}, "counts": [("k", {"n": 7})]}
NESTED_IDS = {
    "row": 1,
    "person": 2,
    "counts": 3,
    "person.name": 4,
    "person.tags": 5,
    "person.tags.element": 6,
    "counts.key": 7,
    "counts.value": 8,
    "counts.value.n": 9,
}
PLAIN = pa.record_batch(
    {
        "row": pa.array([3, 1, None, 2], pa.int64()),
        "flag": [True, False, None, True],
        "ratio": [0.5, float("nan"), -2.5, None],
        "text": ["b", "a" * 40, None, "z" * 40],
        "raw": [b"\x01", b"\x00\xff", None, b"\x7f" * 20],
        "price": pa.array([Decimal("1.50"), Decimal("-2.25"), None, Decimal("9.99")], pa.decimal128(9, 2)),
        "wide": pa.array([Decimal(10**30), Decimal(-(10**30)), None, Decimal(5)], pa.decimal128(38, 0)),
        "day": [date(2024, 1, 2), date(1969, 1, 1), None, date(2024, 1, 1)],
        "at": pa.array(
            [datetime(2024, 1, 1, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC), None, None],
            pa.timestamp("us", "UTC"),
        ),
        "nothing": pa.nulls(4, pa.int32()),
    }
)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "warehouse")


def files_of(warehouse: Warehouse) -> list[DataFile]:
    return [task.file for task in warehouse.table().scan().plan_files()]


def ids_of(fields: Any, path: str = "") -> Iterator[tuple[str, int]]:
    """The ids in an Arrow schema that was read from a file."""
    for field in fields:
        name = f"{path}{field.name}"
        yield name, int(field.metadata[b"PARQUET:field_id"])
        if pa.types.is_struct(field.type):
            yield from ids_of(field.type, f"{name}.")
        elif pa.types.is_map(field.type):
            yield from ids_of([field.type.key_field, field.type.item_field], f"{name}.")
        elif pa.types.is_list(field.type):
            yield from ids_of([field.type.value_field], f"{name}.")


def test_files_carry_the_ids_of_the_catalog_down_to_the_leaves(warehouse: Warehouse) -> None:
    rows = pa.RecordBatch.from_pylist([NESTED_ROW], NESTED)
    warehouse.job(one_batch(rows), NESTED, roll=NEVER).run_to(3)
    (file,) = files_of(warehouse)
    footer = pq.read_metadata(file.file_path.removeprefix("file://")).schema.to_arrow_schema()
    assert dict(ids_of(footer)) == NESTED_IDS
    schema = warehouse.table().schema()
    assert {name: schema.find_field(name).field_id for name in NESTED_IDS} == NESTED_IDS
    assert warehouse.table().scan().to_arrow().to_pylist() == [NESTED_ROW] * 3


def test_ids_are_the_tables_own_and_columns_come_in_its_order(warehouse: Warehouse) -> None:
    warehouse.sink().check(NESTED)
    table = warehouse.table()
    with table.update_schema() as update:
        update.rename_column("row", "old_row")
    with table.update_schema() as update:
        update.add_column("row", LongType())
    inner = pa.struct([("tags", pa.large_list(pa.large_string())), ("name", pa.string())])
    rows = pa.record_batch({"person": pa.array([{"name": "ada", "tags": ["x"]}], inner), "row": [5]})
    warehouse.job(one_batch(rows), rows.schema).run_to(1)
    (file,) = files_of(warehouse)
    footer = pq.read_metadata(file.file_path.removeprefix("file://")).schema.to_arrow_schema()
    assert [(field.name, field.metadata[b"PARQUET:field_id"]) for field in footer] == [
        ("person", b"2"),
        ("row", b"10"),
    ]
    assert warehouse.table().scan().to_arrow().to_pylist() == [
        {"old_row": None, "person": {"name": "ada", "tags": ["x"]}, "counts": None, "row": 5}
    ]


def test_fields_that_a_struct_lacks_are_filled_with_nothing(warehouse: Warehouse) -> None:
    warehouse.sink().check(NESTED)
    rows = pa.record_batch({"row": [1], "person": [{"name": "ada"}]})
    warehouse.job(one_batch(rows), rows.schema).run_to(1)
    assert warehouse.table().scan().to_arrow()["person"].to_pylist() == [{"name": "ada", "tags": None}]


def test_bounds_and_counts_are_those_of_the_rows(warehouse: Warehouse) -> None:
    warehouse.job(one_batch(PLAIN), PLAIN.schema, roll=NEVER).run_to(2)
    (file,) = files_of(warehouse)
    schema = warehouse.table().schema()
    types = {field.name: (field.field_id, field.field_type) for field in schema.fields}
    bounds = {
        name: (from_bytes(kind, file.lower_bounds[key]), from_bytes(kind, file.upper_bounds[key]))
        for name, (key, kind) in types.items()
        if key in file.lower_bounds
    }
    assert bounds == {
        "row": (1, 3),
        "flag": (False, True),
        "ratio": (-2.5, 0.5),
        "text": ("a" * 16, "z" * 15 + "{"),
        "raw": (b"\x00\xff", b"\x7f" * 15 + b"\x80"),
        "price": (Decimal("-2.25"), Decimal("9.99")),
        "wide": (Decimal(-(10**30)), Decimal(10**30)),
        "day": (-365, 19724),
        "at": (-315619200000000, 1704067200000000),
    }
    assert file.record_count == 8
    assert set(file.value_counts.values()) == {8}
    nulls = {name: file.null_value_counts[key] for name, (key, _) in types.items()}
    expected = {name: 2 * PLAIN.column(name).null_count for name in PLAIN.schema.names}
    assert nulls == expected
    assert file.file_size_in_bytes == Path(file.file_path.removeprefix("file://")).stat().st_size


def test_the_bounds_let_a_scan_skip_files(warehouse: Warehouse) -> None:
    job = warehouse.job(lambda epoch, subtask: pa.record_batch({"row": [10 * epoch + subtask]}))
    job.schema = pa.schema([("row", pa.int64())])
    job.run_to(3)
    planned = list(warehouse.table().scan(row_filter=GreaterThan("row", 25)).plan_files())
    assert len(planned) == 2
    assert warehouse.rows(row_filter=GreaterThan("row", 25)) == [30, 31]


def test_the_metrics_that_a_table_asks_for_are_kept(warehouse: Warehouse) -> None:
    settings = {
        "write.metadata.metrics.default": "counts",
        "write.metadata.metrics.column.row": "full",
        "write.metadata.metrics.column.text": "none",
    }
    warehouse.job(one_batch(PLAIN), PLAIN.schema, properties=settings).run_to(1)
    (file,) = files_of(warehouse)
    assert list(file.lower_bounds) == [1]
    assert sorted(file.value_counts) == [key for key in range(1, 11) if key != 4]


def test_short_decimals_are_stored_as_integers(warehouse: Warehouse) -> None:
    warehouse.job(one_batch(PLAIN), PLAIN.schema).run_to(1)
    (file,) = files_of(warehouse)
    columns = pq.read_metadata(file.file_path.removeprefix("file://")).schema
    kinds = {columns.column(number).name: columns.column(number).physical_type for number in range(10)}
    assert (kinds["price"], kinds["wide"]) == ("INT32", "FIXED_LEN_BYTE_ARRAY")


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (["text"], [("a" * 40,), ("b",), ("z" * 40,), (None,)]),
        (["truncate(1, text)"], [("a",), ("b",), ("z",), (None,)]),
        (["bucket(4, row)"], None),
        (["year(at)"], [(-10,), (54,), (None,)]),
        (["month(at)"], [(-120,), (648,), (None,)]),
        (["day(at)"], [(-3653,), (19723,), (None,)]),
        (["hour(at)"], [(-87672,), (473352,), (None,)]),
        (["day"], [(-365,), (19723,), (19724,), (None,)]),
        (["flag"], [(False,), (True,), (None,)]),
        (["price"], [(Decimal("-2.25"),), (Decimal("1.50"),), (Decimal("9.99"),), (None,)]),
        (["truncate(100, price)", "flag"], None),
        (["raw"], [(b"\x00\xff",), (b"\x01",), (b"\x7f" * 20,), (None,)]),
        (["nothing"], [(None,)]),
    ],
    ids=str,
)
def test_a_file_holds_the_rows_of_one_partition_tuple(
    warehouse: Warehouse, by: list[str], expected: list[tuple[Any, ...]] | None
) -> None:
    warehouse.job(one_batch(PLAIN), PLAIN.schema, partition_by=by, roll=NEVER).run_to(2)
    tuples = [tuple(file.partition) for file in files_of(warehouse)]
    assert len(tuples) == len(set(tuples)), "one open file for each"
    if expected is not None:
        assert sorted(tuples, key=str) == sorted(expected, key=str)
    found = warehouse.table().scan().to_arrow()
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, PLAIN.to_pylist() * 2))


@pytest.mark.parametrize("by", [[], ["day(at)"], ["hour(at)"], ["year(at)", "day"], ["at"]], ids=str)
def test_times_outside_of_the_calendar_of_datetime_are_appended(warehouse: Warehouse, by: list[str]) -> None:
    far_us = 1_700_000_000_000 * 1_000_000
    rows = pa.record_batch(
        {
            "row": [1, 2, 3],
            "at": pa.array([far_us, -far_us, 0], pa.timestamp("us", "UTC")),
            "day": pa.array([20_000_000, -20_000_000, 0], pa.date32()),
        }
    )
    job = warehouse.job(one_batch(rows), rows.schema, partition_by=by, roll=NEVER)
    job.event_time = "at"
    job.run_to(2)
    job.run_to(4)
    assert warehouse.rows() == [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]
    summary = warehouse.table().metadata.snapshots[-1].summary
    assert summary is not None
    assert summary["total-records"] == "12"


def test_a_scan_by_a_partitioned_column_reads_its_partition_only(warehouse: Warehouse) -> None:
    warehouse.job(one_batch(PLAIN), PLAIN.schema, partition_by=["bucket(64, row)"]).run_to(1)
    scan = warehouse.table().scan(row_filter="row == 3")
    assert len(list(scan.plan_files())) == 1
    assert scan.to_arrow()["row"].to_pylist() == [3]


def test_a_table_can_be_partitioned_by_a_field_of_a_struct(warehouse: Warehouse) -> None:
    rows = pa.record_batch({"row": [1, 2], "person": [{"name": "ada"}, {"name": "bob"}]})
    warehouse.job(one_batch(rows), rows.schema, partition_by=["person.name"]).run_to(1)
    assert sorted(file.partition[0] for file in files_of(warehouse)) == ["ada", "bob"]
