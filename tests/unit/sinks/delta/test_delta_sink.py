"""What a Delta sink creates, extends and refuses before the first epoch, and what its files hold."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from tests.support.sinks.delta_job import NEVER, DeltaFolder, one_batch
from tests.support.sinks.sink_job import JOB, SCHEMA, SINK, expected_rows, numbered_rows

from lakestate.errors import IncompatibleStateError, InvalidInputError
from lakestate.sinks.delta.sink import DeltaSink
from lakestate.sinks.files.names import sink_fingerprint

ROWS = numbered_rows(20)
NOON = datetime(2024, 2, 29, 12, 0, 0, 500_000, UTC)

EVERY_TYPE = pa.schema(
    [
        ("byte", pa.int8()),
        ("short", pa.int16()),
        ("integer", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("exact", pa.decimal128(38, 10)),
        ("price", pa.decimal128(9, 2)),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("place", pa.struct([("x", pa.int32()), ("name", pa.struct([("short", pa.string())]))])),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("counts", pa.map_(pa.string(), pa.int64())),
    ]
)
ROW: dict[str, Any] = {
    "byte": -1,
    "short": 2,
    "integer": 3,
    "long": 2**62,
    "float": 0.5,
    "double": -0.25,
    "exact": Decimal("12345678901234567890.1234567890"),
    "price": Decimal("19.99"),
    "flag": True,
    "text": "a/b=ü",
    "bytes": b"\x00\xff",
    "day": date(2024, 2, 29),
    "at": NOON,
    "local": NOON.replace(tzinfo=None),
    "place": {"x": 7, "name": {"short": "HH"}},
    "tags": ["x", None],
    "counts": [("a", 1)],
}
EMPTY = dict.fromkeys(EVERY_TYPE.names)


@pytest.fixture
def folder(tmp_path: Path) -> DeltaFolder:
    return DeltaFolder(tmp_path / "orders % 1")


def batch_of(*rows: dict[str, Any], schema: pa.Schema = EVERY_TYPE) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=schema)


def test_every_type_is_read_as_it_was_written(folder: DeltaFolder) -> None:
    folder.job(one_batch(batch_of(ROW, EMPTY)), EVERY_TYPE).run_to(1)
    assert sorted(folder.all_rows(), key=lambda row: row["byte"] is None) == [ROW, EMPTY]
    assert folder.table().protocol().writer_features == ["timestampNtz"]


PARTITIONS = ["byte", "long", "price", "flag", "text", "day", "at", "local"]


def test_every_type_that_can_partition_a_table_does(folder: DeltaFolder) -> None:
    folder.job(one_batch(batch_of(ROW, EMPTY)), EVERY_TYPE, partition_by=PARTITIONS).run_to(1)
    assert sorted(folder.all_rows(), key=lambda row: row["byte"] is None) == [ROW, EMPTY]
    values = [each["partitionValues"] for each in folder.actions("add")]
    assert values == [
        {
            "byte": "-1",
            "long": str(2**62),
            "price": "19.99",
            "flag": "true",
            "text": "a/b=ü",
            "day": "2024-02-29",
            "at": "2024-02-29T12:00:00.500000Z",
            "local": "2024-02-29 12:00:00.5",
        },
        dict.fromkeys(PARTITIONS),
    ]


def test_the_log_has_statistics_of_each_file(folder: DeltaFolder) -> None:
    later = {**ROW, "byte": 5, "text": "z" * 40, "double": float("nan"), "place": {"x": 9, "name": None}}
    folder.job(one_batch(batch_of(ROW, EMPTY, later)), EVERY_TYPE).run_to(1)
    (added,) = folder.actions("add")
    counted = {name: 1 for name in EVERY_TYPE.names if name not in ("place", "tags", "counts")}
    both = {
        "short": 2,
        "integer": 3,
        "long": 2**62,
        "price": 19.99,
        "day": "2024-02-29",
        "at": "2024-02-29T12:00:00.500000Z",
        "local": "2024-02-29T12:00:00.500000",
    }
    assert json.loads(added["stats"]) == {
        "numRecords": 3,
        "minValues": {
            **both,
            "byte": -1,
            "float": 0.5,
            "double": -0.25,
            "text": "a/b=ü",
            "place": {"x": 7, "name": {"short": "HH"}},
        },
        "maxValues": {
            **both,
            "byte": 5,
            "text": "z" * 32 + "\U0010ffff",
            "place": {"x": 9, "name": {"short": "HH"}},
        },
        "nullCount": {**counted, "place": {"x": 1, "name": {"short": 2}}},
    }


@pytest.mark.parametrize(
    ("properties", "columns"),
    [
        ({"delta.dataSkippingNumIndexedCols": "1"}, {"row"}),
        ({"delta.dataSkippingNumIndexedCols": "-1"}, {"row", "country", "text"}),
        ({"delta.dataSkippingStatsColumns": "`text`, row"}, {"row", "text"}),
    ],
)
def test_statistics_are_of_the_columns_that_the_table_wants(
    folder: DeltaFolder, properties: dict[str, str], columns: set[str]
) -> None:
    folder.job(ROWS, properties=properties).run_to(1)
    assert {frozenset(json.loads(each["stats"])["minValues"]) for each in folder.actions("add")} == {
        frozenset(columns)
    }


def test_readers_skip_files_by_statistics_and_partitions(folder: DeltaFolder) -> None:
    folder.job(ROWS, partition_by=["country"]).run_to(2)
    first = ROWS(1, 0)["row"].to_pylist()
    dataset = folder.table().to_pyarrow_dataset()
    wanted = pa.compute.field("row") <= first[-1]
    found = dataset.to_table(filter=wanted)["row"].to_pylist()
    assert sorted(found) == first
    in_france = wanted & (pa.compute.field("country") == "FR")
    paths = [fragment.path for fragment in dataset.get_fragments(filter=in_france)]
    assert [path.rpartition("-id-")[0] for path in paths] == [
        f"country=FR/part-{sink_fingerprint(JOB, SINK, '')}-0000000001-00000"
    ]


def test_open_files_continue_in_other_processes(folder: DeltaFolder) -> None:
    job = folder.job(ROWS, roll=NEVER, kept_row_bytes=0)
    job.run_to(4)
    assert folder.rows() == expected_rows(ROWS, 4, 2)
    assert len(folder.actions("add")) == 2


def test_subtasks_do_not_read_the_table(folder: DeltaFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = folder.sink()
    sink.check(SCHEMA)
    job = folder.job(ROWS)
    job.open_sink = lambda: sink  # type: ignore[assignment, return-value]
    with monkeypatch.context() as patched:
        patched.setattr(DeltaSink, "load_table", lambda sink: pytest.fail("a subtask reads the table"))
        job.publish([job.attempt(subtask).finish() for subtask in range(2)])
    job.commit()
    assert folder.rows() == expected_rows(ROWS, 1, 2)


WIDE = pa.schema([*SCHEMA, ("note", pa.large_string()), ("at", pa.timestamp("ns"))])


def test_columns_that_the_table_lacks_are_added_when_asked(folder: DeltaFolder) -> None:
    folder.job(ROWS).run_to(1)
    row = {"row": 1, "country": "DE", "text": "", "note": "new", "at": datetime(2024, 1, 1)}
    job = folder.job(one_batch(batch_of(row, schema=WIDE)), WIDE, evolve=True)
    job.state_id = "4f1c"
    job.run_to(1)
    found = {each["row"]: each for each in folder.all_rows()}
    assert found[1] == row
    assert {(each["note"], each["at"]) for number, each in found.items() if number != 1} == {(None, None)}


def test_columns_that_the_table_lacks_are_refused_unless_asked(folder: DeltaFolder) -> None:
    folder.job(ROWS)
    with pytest.raises(InvalidInputError) as raised:
        folder.sink().check(WIDE)
    assert str(raised.value) == (
        "the table lacks a column of the rows: note; expected row, country, text; "
        "pass evolve=True to add it to the table, or drop it before the sink [invalid_input]"
    )
    folder.sink(evolve=True).dry_run(WIDE)
    assert folder.table().version() == 0


def test_a_column_added_by_others_under_open_files_is_null_in_them(folder: DeltaFolder) -> None:
    job = folder.job(ROWS, roll=NEVER)
    job.run_to(1, finish_files=False)
    folder.sink(evolve=True).check(WIDE)
    job.run_to(2)
    assert folder.rows() == expected_rows(ROWS, 2, 2)


def test_a_table_whose_columns_changed_under_open_files_is_refused(folder: DeltaFolder) -> None:
    job = folder.job(ROWS, roll=NEVER)
    job.run_to(1, finish_files=False)
    sink = folder.sink(roll=NEVER)
    sink.check(SCHEMA)
    other = pa.table({"row": ["1"], "country": ["DE"], "text": [""]})
    write_deltalake(folder.root, other, mode="overwrite", schema_mode="overwrite")
    job.open_sink = lambda: sink  # type: ignore[assignment, return-value]
    with pytest.raises(AssertionError, match="again and again"):
        job.run_to(2)
    with pytest.raises(IncompatibleStateError, match="the columns of the table have changed"):
        job.commit()


def test_the_event_time_can_be_left_out(folder: DeltaFolder) -> None:
    schema = pa.schema([("n", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
    sink = folder.sink(drop_event_time=True)
    sink.check(schema, "ts")
    assert [field.name for field in folder.table().schema().fields] == ["n"]


def test_files_hold_the_columns_of_the_table_without_partitions(folder: DeltaFolder) -> None:
    folder.job(ROWS, partition_by=["country"]).run_to(1)
    paths = sorted(folder.root.rglob("*.parquet"))
    assert {path.parent.name for path in paths} == {"country=DE", "country=FR"}
    assert {tuple(pq.read_schema(path).names) for path in paths} == {("row", "text")}
