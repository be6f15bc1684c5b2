"""What a Delta sink refuses by name: rows and tables before the first epoch, and values that cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.support.sinks.delta_job import DeltaFolder, one_batch
from tests.support.sinks.sink_job import SCHEMA, numbered_rows

from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.sinks.delta.sink import DeltaSink
from lakestate.sinks.rolling import Roll

ROWS = numbered_rows(20)


@pytest.fixture
def folder(tmp_path: Path) -> DeltaFolder:
    return DeltaFolder(tmp_path / "orders % 1")


def test_a_dry_run_creates_nothing(folder: DeltaFolder) -> None:
    folder.sink().dry_run(SCHEMA)
    with pytest.raises(InvalidInputError, match="has no type for a column: t; found time64"):
        folder.sink().dry_run(pa.schema([("t", pa.time64("us"))]))
    with pytest.raises(NotFoundError, match="there is no Delta table"):
        folder.sink(create=False).dry_run(SCHEMA)
    assert not folder.root.exists()


REFUSED_ROWS = [
    (pa.schema([("country", pa.string())]), "rows lack a column that cannot be null in the table: row"),
    (pa.schema([("row", pa.int64())]), "rows lack a column that the table is partitioned by: "),
    (
        pa.schema([("row", pa.string()), ("country", pa.string())]),
        "a column does not fit into the table: row; found string; expected int64",
    ),
    (
        pa.schema([("row", pa.uint64()), ("country", pa.string())]),
        "a Delta table has no type for a column: row; found uint64",
    ),
    (
        pa.schema([("row", pa.int64()), ("country", pa.string()), ("place", pa.struct([("z", pa.int8())]))]),
        "the table lacks a column of the rows: place.z; expected x",
    ),
    (pa.schema([("row", pa.int64()), ("Country", pa.string())]), "the table lacks a column of the rows: Co"),
]


@pytest.mark.parametrize(("schema", "message"), REFUSED_ROWS)
def test_rows_that_do_not_fit_are_refused_before_the_first_epoch(
    folder: DeltaFolder, schema: pa.Schema, message: str
) -> None:
    columns = [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("country", pa.string()),
        pa.field("place", pa.struct([("x", pa.int32())])),
    ]
    DeltaTable.create(folder.root, pa.schema(columns), partition_by=["country"])
    for act in (folder.sink().check, folder.sink().dry_run):
        with pytest.raises(InvalidInputError) as raised:
            act(schema)
        assert str(raised.value).startswith(message)


def test_a_null_in_a_column_that_cannot_be_null_stops_the_epoch(folder: DeltaFolder) -> None:
    DeltaTable.create(folder.root, pa.schema([pa.field("row", pa.int64(), nullable=False)]))
    rows = pa.record_batch({"row": pa.array([1, None], pa.int64())})
    job = folder.job(one_batch(rows), rows.schema)
    with pytest.raises(InvalidInputError, match="a required column has no value: row"):
        job.attempt(0).finish()


def test_an_empty_text_in_a_partition_that_cannot_be_null_stops_the_epoch(folder: DeltaFolder) -> None:
    schema = pa.schema([pa.field("town", pa.string(), nullable=False), ("n", pa.int64())])
    DeltaTable.create(folder.root, schema, partition_by=["town"])
    job = folder.job(one_batch(pa.RecordBatch.from_pylist([{"town": "", "n": 1}], schema=schema)), schema)
    with pytest.raises(InvalidInputError, match="a partition of the empty text is null"):
        job.attempt(0).finish()


def test_a_year_that_readers_do_not_know_is_refused_in_a_partition(folder: DeltaFolder) -> None:
    days = pa.array([3_000_000], pa.int32()).cast(pa.date32())
    rows = pa.record_batch({"day": days, "n": [1]})
    job = folder.job(one_batch(rows), rows.schema, partition_by=["day"])
    with pytest.raises(InvalidInputError, match="outside of the years that a partition can have: day"):
        job.attempt(0).finish()


REFUSED_COLUMNS = [
    ({"a b": pa.int64()}, {}, "not the name of a column in a Delta table: a b"),
    ({"a": pa.int64(), "A": pa.int64()}, {}, "two columns of a Delta table differ only in case; found a, A"),
    ({"a": pa.null()}, {}, "a Delta table has no type for a column: a; found null"),
    ({"a": pa.decimal256(50, 2)}, {}, "a Delta table has no type for a column: a"),
    (
        {"a": pa.float64(), "b": pa.int64()},
        {"partition_by": ["a"]},
        "files cannot be partitioned by a column",
    ),
    ({"a": pa.int64()}, {"partition_by": ["a"]}, "no column is left to write"),
    ({"a": pa.int64()}, {"partition_by": ["c"]}, "a table is partitioned by a column that rows do not have"),
]


@pytest.mark.parametrize(("columns", "settings", "message"), REFUSED_COLUMNS)
def test_a_table_that_cannot_be_created_is_refused(
    folder: DeltaFolder, columns: dict[str, pa.DataType], settings: dict[str, Any], message: str
) -> None:
    schema = pa.schema(list(columns.items()))
    for act in (folder.sink(**settings).check, folder.sink(**settings).dry_run):
        with pytest.raises(InvalidInputError) as raised:
            act(schema)
        assert str(raised.value).startswith(message)
    assert not folder.root.exists()


def test_another_partitioning_than_the_tables_is_refused(folder: DeltaFolder) -> None:
    folder.sink(partition_by="country").check(SCHEMA)
    folder.sink().check(SCHEMA)
    with pytest.raises(InvalidInputError, match="found country; expected text") as raised:
        folder.sink(partition_by=["text"]).check(SCHEMA)
    assert raised.value.summary == "the table is partitioned by other columns"


FEATURES = [
    (
        {"writerFeatures": ["deletionVectors"], "readerFeatures": ["deletionVectors"]},
        {},
        {},
        "deletionVectors",
    ),
    ({"writerFeatures": ["rowTracking", "domainMetadata"]}, {}, {}, "table feature rowTracking"),
    ({"writerFeatures": ["clustering"]}, {}, {}, "table feature clustering"),
    ({"writerFeatures": ["somethingNew"]}, {}, {}, "table feature somethingNew"),
    ({"minWriterVersion": 6}, {}, {}, "reader 1, writer 6"),
    ({"minWriterVersion": 3}, {"delta.constraints.positive": "row > 0"}, {}, "CHECK constraints"),
    (
        {"minWriterVersion": 2},
        {},
        {"delta.invariants": "{}"},
        "an invariant: the sink does not check it (row)",
    ),
    ({"minWriterVersion": 4}, {}, {"delta.generationExpression": "1"}, "a generated column (row)"),
    (
        {"minReaderVersion": 2, "minWriterVersion": 5},
        {"delta.columnMapping.mode": "name"},
        {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"},
        "column mapping (delta.columnMapping.mode)",
    ),
]


@pytest.mark.parametrize(("protocol", "properties", "column", "named"), FEATURES)
def test_what_a_table_asks_of_writers_and_the_sink_does_not_do_is_refused_by_name(
    folder: DeltaFolder,
    protocol: dict[str, Any],
    properties: dict[str, str],
    column: dict[str, Any],
    named: str,
) -> None:
    _write_log(folder.root, protocol, properties, column)
    with pytest.raises(InvalidInputError) as raised:
        folder.sink().check(pa.schema([("row", pa.int64())]))
    assert raised.value.summary == "the table uses what the sink cannot write"
    assert named in str(raised.value.found)


def test_features_that_are_listed_and_not_used_are_accepted(folder: DeltaFolder) -> None:
    features = ["appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"]
    protocol = {"writerFeatures": features}
    _write_log(folder.root, protocol, {"delta.appendOnly": "true"}, {})
    rows = pa.record_batch({"row": [1, 2]})
    folder.job(one_batch(rows), rows.schema).run_to(1)
    assert folder.rows() == [1, 2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"commit_attempts_max": 0}, "a commit must be tried once"),
        ({"roll": Roll(past_watermark="1 minute")}, "are not rolled by watermark"),
        ({"compression": "best"}, "compression"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        DeltaSink("/data/orders", **settings)


def test_settings_with_which_writers_overwrite_each_other_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="overwrite each other's commits"):
        DeltaSink("s3://bucket/orders", options={"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    with pytest.raises(InvalidInputError, match="cannot be in memory"):
        DeltaSink("memory://orders")


def test_a_log_that_cannot_be_read_is_an_error_of_ours(folder: DeltaFolder) -> None:
    folder.job(ROWS)
    (folder.root / "_delta_log" / f"{0:020d}.json").write_text("{broken")
    with pytest.raises(InvalidInputError) as raised:
        folder.sink().check(SCHEMA)
    assert raised.value.object_name == folder.sink().url


def _write_log(
    root: Path, protocol: dict[str, Any], properties: dict[str, str], column: dict[str, Any]
) -> None:
    """A table of one column `row`, as another writer might have made it."""
    has_features = "writerFeatures" in protocol
    versions = {"minReaderVersion": 3, "minWriterVersion": 7} if has_features else {"minReaderVersion": 1}
    listed = {"readerFeatures": []} if has_features else {}
    field = {"name": "row", "type": "long", "nullable": True, "metadata": column}
    metadata = {
        "id": "5d9f8c5e-0000-4000-8000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": [field]}),
        "partitionColumns": [],
        "configuration": properties,
        "createdTime": 1,
    }
    lines = [{"protocol": {**versions, **listed, **protocol}}, {"metaData": metadata}]
    (root / "_delta_log").mkdir(parents=True)
    (root / "_delta_log" / f"{0:020d}.json").write_text("\n".join(json.dumps(line) for line in lines))
