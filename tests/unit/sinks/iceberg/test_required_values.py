"""Values that a table requires deep inside a column: a missing one stops the epoch, a hidden one does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType
from tests.support.sinks.iceberg_job import EVERY_EPOCH, NEVER, TABLE, Warehouse, one_batch

from lakestate.errors import InvalidInputError
from lakestate.sinks.rolling import Roll
from lakestate.tables.arrow.required_values import require_values

PERSON = StructType(
    NestedField(20, "name", StringType(), required=True),
    NestedField(21, "tags", ListType(22, StringType(), element_required=True), required=True),
)
COLUMNS = {
    "list": ListType(10, LongType(), element_required=True),
    "map": MapType(10, StringType(), 11, LongType(), value_required=True),
    "struct": PERSON,
    "structs in lists in maps": MapType(
        10, StringType(), 11, ListType(12, PERSON, element_required=False), value_required=True
    ),
}
WHOLE: dict[str, list[Any]] = {
    "list": [[1, 2], None, []],
    "map": [[("a", 1)], None, []],
    "struct": [{"name": "ada", "tags": ["x"]}, None, {"name": "bob", "tags": []}],
    "structs in lists in maps": [[("a", [{"name": "ada", "tags": ["x"]}, None]), ("b", [])], None, []],
}
ROW_TYPES = {
    "list": pa.list_(pa.int64()),
    "map": pa.map_(pa.string(), pa.int64()),
    "struct": pa.struct([("name", pa.string()), ("tags", pa.list_(pa.string()))]),
    "structs in lists in maps": pa.map_(
        pa.string(), pa.list_(pa.struct([("name", pa.string()), ("tags", pa.list_(pa.string()))]))
    ),
}


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "warehouse")


def table_with(warehouse: Warehouse, column: str) -> None:
    catalog = warehouse.catalog.load()
    catalog.create_namespace("shop")
    row = NestedField(1, "row", LongType(), required=False)
    catalog.create_table(TABLE, Schema(row, NestedField(2, "x", COLUMNS[column], required=False)))


def rows_of(column: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"row": pa.array(range(len(column)), pa.int64()), "x": column})


def as_spark_has_it(structs: pa.StructArray) -> pa.StructArray:
    """Fields are null where the struct is. Arrow itself puts an empty value there."""
    return pa.StructArray.from_arrays(structs.flatten(), fields=list(structs.type), mask=structs.is_null())


@pytest.mark.parametrize("roll", [EVERY_EPOCH, NEVER], ids=["finished", "open"])
@pytest.mark.parametrize(
    ("column", "value", "path"),
    [
        ("list", [1, None], "x.element"),
        ("map", [("a", 1), ("b", None)], "x.value"),
        ("struct", {"name": None, "tags": []}, "x.name"),
        ("struct", {"name": "ada", "tags": None}, "x.tags"),
        ("struct", {"name": "ada", "tags": [None]}, "x.tags.element"),
        ("structs in lists in maps", [("a", None)], "x.value"),
        ("structs in lists in maps", [("a", [None, {"name": None, "tags": []}])], "x.value.element.name"),
        (
            "structs in lists in maps",
            [("a", [None, {"name": "ada", "tags": ["x", None]}])],
            "x.value.element.tags.element",
        ),
    ],
)
def test_a_null_that_the_table_does_not_allow_is_named_before_the_epoch_is_published(
    warehouse: Warehouse, roll: Roll, column: str, value: Any, path: str
) -> None:
    table_with(warehouse, column)
    rows = rows_of(pa.array([*WHOLE[column], value], ROW_TYPES[column]))
    job = warehouse.job(one_batch(rows), rows.schema, roll=roll)
    with pytest.raises(InvalidInputError, match="a required column has no value") as error:
        job.attempt(0).finish()
    assert error.value.object_name == path


@pytest.mark.parametrize("column", list(COLUMNS))
def test_a_null_parent_needs_none_of_what_it_would_have(warehouse: Warehouse, column: str) -> None:
    table_with(warehouse, column)
    rows = rows_of(pa.array(WHOLE[column], ROW_TYPES[column]))
    warehouse.job(one_batch(rows), rows.schema, roll=NEVER).run_to(2)
    found = warehouse.table().scan().to_arrow().sort_by("row")["x"].to_pylist()
    assert found == [value for value in WHOLE[column] for _ in range(2)]


@pytest.mark.parametrize("values", [WHOLE["struct"], [None, None], [None, *WHOLE["struct"]]], ids=len)
def test_the_null_fields_of_a_null_struct_are_not_values(warehouse: Warehouse, values: list[Any]) -> None:
    table_with(warehouse, "struct")
    rows = rows_of(as_spark_has_it(pa.array(values, ROW_TYPES["struct"])))
    warehouse.job(one_batch(rows), rows.schema, roll=NEVER).run_to(2)
    found = warehouse.table().scan().to_arrow().sort_by("row")["x"].to_pylist()
    assert found == [value for value in values for _ in range(2)]


def test_null_structs_in_a_list_hide_their_fields() -> None:
    inner = pa.struct([pa.field("id", pa.uuid(), nullable=False)])
    field = pa.field("x", pa.list_(pa.field("element", inner)))
    ids = pa.nulls(2, pa.uuid())
    structs = pa.StructArray.from_arrays([ids], ["id"], mask=pa.array([True, True]))
    found = require_values(pa.ListArray.from_arrays(pa.array([0, 1, 2]), structs), field, "write")
    assert (found.type, found.to_pylist()) == (field.type, [[None], [None]])
    assert found.values.field(0).null_count == 0


def test_a_map_whose_values_are_required_says_so_in_its_own_type() -> None:
    # Arrow takes the types for equal, and its Parquet writer crashes with UUIDs of the other one.
    field = pa.field("x", pa.map_(pa.string(), pa.field("value", pa.uuid(), nullable=False)))
    ids = pa.array([[("a", b"x" * 16)]], pa.map_(pa.string(), pa.binary(16)))
    found = require_values(ids.cast(pa.map_(pa.string(), pa.uuid())), field, "write")
    assert not found.type.item_field.nullable


def test_what_a_null_list_or_a_slice_leaves_out_is_not_looked_at() -> None:
    field = pa.field("x", pa.list_(pa.field("element", pa.int64(), nullable=False)))
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 4]), pa.array([None, None, 3, 4]), mask=pa.array([False, True, False])
    )
    found = require_values(lists.slice(1), field, "write")
    assert (found.type, found.to_pylist()) == (field.type, [None, [3, 4]])
    with pytest.raises(InvalidInputError, match=r"x\.element"):
        require_values(lists, field, "write")
