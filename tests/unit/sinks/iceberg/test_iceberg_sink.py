"""Iceberg tables as a sink's output: read back by others, created, checked and refused."""

from __future__ import annotations

import pickle
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.support.repository import ROOT
from tests.support.sinks.iceberg_job import NEVER, TABLE, Warehouse, one_batch
from tests.support.sinks.sink_job import SCHEMA, expected_rows, numbered_rows

from lakestate.errors import InvalidInputError, MissingExtraError, NotFoundError
from lakestate.sinks.iceberg import catalog as iceberg_catalog
from lakestate.sinks.iceberg.catalog import IcebergCatalog
from lakestate.sinks.iceberg.sink import IcebergSink
from lakestate.sinks.rolling import Roll

ROWS = numbered_rows(20)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "warehouse")


def test_every_row_is_in_the_table_once(warehouse: Warehouse) -> None:
    warehouse.job(ROWS, partition_by=["country"]).run_to(3)
    assert warehouse.rows() == expected_rows(ROWS, 3, 2)


def test_duckdb_reads_the_files_of_the_plan(warehouse: Warehouse) -> None:
    warehouse.job(ROWS, partition_by=["country"]).run_to(2)
    paths = [task.file.file_path.removeprefix("file://") for task in warehouse.table().scan().plan_files()]
    query = 'SELECT "row", country FROM read_parquet(?, hive_partitioning=false) ORDER BY 1'
    found = duckdb.connect().execute(query, [paths]).fetchall()
    read = warehouse.table().scan().to_arrow().sort_by("row")
    assert found == list(zip(read["row"].to_pylist(), read["country"].to_pylist(), strict=True))


def test_each_epoch_that_finished_files_is_one_snapshot(warehouse: Warehouse) -> None:
    warehouse.job(ROWS).run_to(3)
    assert warehouse.epochs() == ["1", "2", "3"]


def test_files_stay_open_across_epochs_and_are_appended_once(warehouse: Warehouse) -> None:
    job = warehouse.job(ROWS, roll=NEVER)
    job.run_to(4, finish_files=False)
    assert warehouse.rows() == []
    assert warehouse.table().metadata.snapshots == []
    job.run_to(5)
    assert warehouse.rows() == expected_rows(ROWS, 5, 2)
    assert len(list(warehouse.table().scan().plan_files())) == 2


def test_an_epoch_without_finished_files_makes_no_snapshot(warehouse: Warehouse) -> None:
    job = warehouse.job(ROWS)
    job.run_epoch()
    job.rows = lambda epoch, subtask: _no_rows()
    job.run_epoch()
    assert warehouse.epochs() == ["1"]


def test_an_older_snapshot_can_be_read(warehouse: Warehouse) -> None:
    warehouse.job(ROWS).run_to(3)
    snapshots = warehouse.table().metadata.snapshots
    found = [warehouse.rows(snapshot_id=each.snapshot_id) for each in snapshots]
    assert found == [expected_rows(ROWS, epochs, 2) for epochs in (1, 2, 3)]


def test_the_hidden_files_of_an_open_epoch_are_not_in_the_table(warehouse: Warehouse) -> None:
    job = warehouse.job(ROWS)
    job.run_epoch()
    for subtask in range(2):
        job.attempt(subtask).finish()
    assert warehouse.rows() == expected_rows(ROWS, 1, 2)


def test_a_table_is_created_with_the_columns_of_the_stream(warehouse: Warehouse) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.uint16(), nullable=False),
            ("kind", pa.dictionary(pa.int32(), pa.string())),
            ("at", pa.timestamp("ms", "Europe/Berlin")),
            ("tags", pa.list_(pa.string())),
        ]
    )
    warehouse.sink(partition_by=["bucket(8, id)", "hour(at)"], properties={"owner": "me"}).check(schema)
    table = warehouse.table()
    assert [str(field) for field in table.schema().fields] == [
        "1: id: required int",
        "2: kind: optional string",
        "3: at: optional timestamptz",
        "4: tags: optional list<string>",
    ]
    assert [(field.name, str(field.transform)) for field in table.spec().fields] == [
        ("id_bucket", "bucket[8]"),
        ("at_hour", "hour"),
    ]
    assert table.properties["owner"] == "me"


def test_a_table_that_does_not_exist_is_named(warehouse: Warehouse) -> None:
    with pytest.raises(NotFoundError, match=TABLE):
        warehouse.sink(create=False).check(SCHEMA)


def test_an_existing_table_is_taken_as_it_is(warehouse: Warehouse) -> None:
    warehouse.sink(partition_by=["country"]).check(SCHEMA)
    warehouse.job(ROWS, create=False).run_to(1)
    assert {file.file.partition[0] for file in warehouse.table().scan().plan_files()} == {"DE", "FR"}


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        (pa.schema([("row", pa.string()), ("country", pa.string())]), "row"),
        (pa.schema([("row", pa.int64()), ("person", pa.struct([("age", pa.int64())]))]), "person.age"),
        (pa.schema([("row", pa.int64()), ("person", pa.struct([("size", pa.int32())]))]), "person.size"),
        (pa.schema([("row", pa.int64()), ("colour", pa.string())]), "colour"),
        (pa.schema([("country", pa.string())]), "row"),
        (pa.schema([("row", pa.uint64())]), "row"),
        (pa.schema([("row", pa.int64()), ("at", pa.timestamp("us"))]), "at"),
    ],
    ids=["type", "nested type", "unknown nested", "unknown", "missing", "not storable", "time zone"],
)
def test_a_column_that_does_not_fit_is_named(warehouse: Warehouse, schema: pa.Schema, column: str) -> None:
    person = pa.struct([("age", pa.int32())])
    warehouse.sink().check(
        pa.schema(
            [
                pa.field("row", pa.int64(), nullable=False),
                ("country", pa.string()),
                ("person", person),
                ("at", pa.timestamp("us", "UTC")),
            ]
        )
    )
    with pytest.raises(InvalidInputError) as error:
        warehouse.sink().check(schema)
    assert error.value.object_name == column


def test_a_null_in_a_required_column_is_refused(warehouse: Warehouse) -> None:
    warehouse.sink().check(pa.schema([pa.field("row", pa.int64(), nullable=False)]))
    schema = pa.schema([("row", pa.int64())])
    job = warehouse.job(lambda epoch, subtask: pa.record_batch({"row": [1, None]}, schema), schema)
    with pytest.raises(InvalidInputError, match="a required column has no value: row"):
        job.attempt(0).finish()


def test_another_partitioning_than_the_tables_is_refused(warehouse: Warehouse) -> None:
    warehouse.sink(partition_by=["country"]).check(SCHEMA)
    with pytest.raises(InvalidInputError, match=r"identity\(country\)"):
        warehouse.sink(partition_by=["bucket(4, row)"]).check(SCHEMA)


def test_rolling_by_the_watermark_needs_a_partition_of_event_time(warehouse: Warehouse) -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    roll = Roll(past_watermark="0 seconds")
    with pytest.raises(InvalidInputError, match=r"day\(at\)"):
        warehouse.sink(roll=roll).check(schema, "at")
    hourly = IcebergSink("shop.hourly", catalog=warehouse.catalog, roll=roll, partition_by=["hour(at)"])
    hourly.check(schema, "at")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"table": "orders"}, "namespace.name"),
        ({"partition_by": ["week(ts)"]}, "not a partition"),
        ({"partition_by": ["bucket(ts)"]}, "not a partition"),
        ({"partition_by": ["bucket(0, ts)"]}, "not a partition"),
        ({"compression": "brotli"}, "unknown compression"),
        ({"commit_attempts_max": 0}, "tried once"),
        ({"catalog": "s3://bucket/warehouse"}, "not local"),
    ],
)
def test_settings_are_checked_at_once(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        IcebergSink(**{"table": TABLE, "catalog": "file:///data", **settings})  # type: ignore[arg-type]


def test_a_sink_pickles_and_hides_its_credentials(warehouse: Warehouse) -> None:
    sink = IcebergSink(TABLE, catalog={"type": "rest", "uri": "http://x", "token": "s3cr3t"})
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert "s3cr3t" not in repr(sink)


def test_without_pyiceberg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    iceberg_catalog._load_catalog.cache_clear()
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    sink = IcebergSink(TABLE, catalog=IcebergCatalog.sqlite(f"file://{tmp_path}"))
    with pytest.raises(MissingExtraError, match=r"lakestate\[iceberg\]"):
        sink.check(SCHEMA)
    with pytest.raises(MissingExtraError):
        sink.committer()


def test_a_warehouse_with_odd_characters_in_its_path_works(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path / "my %20 wärehouse")
    warehouse.job(ROWS, partition_by=["country"]).run_to(2)
    assert warehouse.rows() == expected_rows(ROWS, 2, 2)


def test_the_example_of_the_documentation_makes_its_table(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "iceberg.md").read_text()
    write, *read_back = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(write.replace("/data/warehouse", str(tmp_path)), names)
    at = pa.timestamp("us", "UTC")
    schema = pa.schema([("country", pa.string()), ("ts", at), ("user", pa.int64())])
    names["sink"].check(schema)
    spec = names["sink"].load_table().spec()
    assert [field.name for field in spec.fields] == ["country", "ts_day", "user_bucket"]
    rows = {"country": ["DE", "FR"], "ts": [datetime(2026, 1, 2, 3, tzinfo=UTC)] * 2, "user": [7, 8]}
    batch = pa.record_batch(rows, schema=schema)
    Warehouse(tmp_path).job_of(lambda: names["sink"], one_batch(batch), schema).run_to(2)
    for block in read_back:
        exec(block.replace("/data/warehouse", str(tmp_path)), names)
    assert names["orders"]["user"].to_pylist() == [7, 7]
    assert [n for _, n in names["days"].fetchall()] == [2]


class TestDryRun:
    def test_nothing_is_created_for_a_new_table(self, tmp_path: Path) -> None:
        sink = IcebergSink("shop.orders", catalog=tmp_path / "warehouse", partition_by=["country"])
        sink.dry_run(SCHEMA)
        assert list(tmp_path.iterdir()) == []

    def test_a_catalog_without_the_table_stays_without_it(self, warehouse: Warehouse) -> None:
        warehouse.sink().check(SCHEMA)
        other = IcebergSink("shop.other", catalog=str(warehouse.root))
        other.dry_run(SCHEMA)
        with pytest.raises(NotFoundError):
            other.load_table()

    def test_rows_that_no_table_could_hold_are_refused(self, tmp_path: Path) -> None:
        sink = IcebergSink("shop.orders", catalog=tmp_path, partition_by=["nope"])
        with pytest.raises(InvalidInputError, match="partitioned by a column that it does not have: nope"):
            sink.dry_run(SCHEMA)
        with pytest.raises(NotFoundError, match=r"shop\.orders"):
            IcebergSink("shop.orders", catalog=tmp_path, create=False).dry_run(SCHEMA)
        assert list(tmp_path.iterdir()) == []

    def test_rows_that_do_not_fit_an_existing_table_are_refused(self, warehouse: Warehouse) -> None:
        warehouse.sink().check(SCHEMA)
        more = SCHEMA.append(pa.field("more", pa.int64()))
        with pytest.raises(InvalidInputError, match="more"):
            warehouse.sink().dry_run(more)


def test_a_warehouse_may_be_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for given in ("warehouse", Path("warehouse")):
        properties = IcebergCatalog.of(IcebergSink("shop.orders", catalog=given).catalog).properties
        assert properties["warehouse"] == f"{tmp_path}/warehouse"
        assert properties["uri"].startswith(f"sqlite:///{tmp_path}/warehouse/catalog.db")


TIMED = pa.schema([("row", pa.int64()), ("at", pa.timestamp("us", "UTC"))])


def test_the_event_time_is_left_out_of_a_table_that_is_created(warehouse: Warehouse) -> None:
    rows = pa.record_batch({"row": [1, 2], "at": [datetime(2026, 1, 2, 3, tzinfo=UTC)] * 2}, schema=TIMED)
    job = warehouse.job(one_batch(rows), TIMED, drop_event_time=True)
    job.event_time = "at"
    job.run_to(2)
    assert warehouse.table().schema().column_names == ["row"]
    assert warehouse.rows() == [1, 1, 2, 2]


def test_a_table_that_has_the_event_time_holds_none_where_it_is_left_out(warehouse: Warehouse) -> None:
    warehouse.sink().check(TIMED, "at")
    rows = pa.record_batch({"row": [1], "at": [datetime(2026, 1, 2, 3, tzinfo=UTC)]}, schema=TIMED)
    job = warehouse.job(one_batch(rows), TIMED, drop_event_time=True)
    job.event_time = "at"
    job.run_to(1)
    assert warehouse.table().scan().to_arrow().to_pylist() == [{"row": 1, "at": None}]


def test_a_table_cannot_be_partitioned_by_an_event_time_that_is_left_out(warehouse: Warehouse) -> None:
    expected = (
        "partitioned by the event-time column, which drop_event_time leaves out: shop.orders, column at"
    )
    with pytest.raises(InvalidInputError, match=expected):
        warehouse.sink(drop_event_time=True, partition_by=["day(at)"]).check(TIMED, "at")
    warehouse.sink(partition_by=["day(at)"]).check(TIMED, "at")
    with pytest.raises(InvalidInputError, match=expected):
        warehouse.sink(drop_event_time=True).check(TIMED, "at")
    job = warehouse.job(one_batch(pa.record_batch([[], []], schema=TIMED)), TIMED, drop_event_time=True)
    job.event_time = "at"
    with pytest.raises(InvalidInputError, match=expected):
        job.attempt(0)


def test_a_table_of_nothing_but_the_event_time_has_no_column_left(warehouse: Warehouse) -> None:
    with pytest.raises(InvalidInputError, match=r"no column is left to write: shop\.orders"):
        warehouse.sink(drop_event_time=True).check(pa.schema([TIMED.field("at")]), "at")


def _no_rows() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], SCHEMA)
