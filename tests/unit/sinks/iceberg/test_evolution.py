"""A table that changes between epochs: what fits continues, what does not stops with the column's name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, StringType
from tests.support.sinks.iceberg_job import EVERY_EPOCH, NEVER, TABLE, Warehouse
from tests.support.sinks.sink_job import SinkJob

from lakestate.errors import IncompatibleStateError, InvalidInputError

SCHEMA = pa.schema([("row", pa.int32()), ("country", pa.string())])


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "warehouse")


@pytest.fixture
def job(warehouse: Warehouse) -> SinkJob:
    """A job with an open file after two epochs."""
    job = warehouse.job(rows, SCHEMA, roll=NEVER)
    job.parallelism = 1
    job.run_to(2, finish_files=False)
    return job


def rows(epoch: int, subtask: int) -> pa.RecordBatch:
    return pa.record_batch({"row": [epoch], "country": ["DE"]}, SCHEMA)


def test_a_column_added_to_the_table_leaves_open_files_whole(warehouse: Warehouse, job: SinkJob) -> None:
    with warehouse.table().update_schema() as update:
        update.add_column("colour", StringType())
    job.run_to(4)
    found = warehouse.table().scan().to_arrow().sort_by("row").to_pylist()
    assert found == [{"row": row, "country": "DE", "colour": None} for row in range(1, 5)]


def test_a_column_added_to_table_and_stream_is_written_from_then_on(
    warehouse: Warehouse, job: SinkJob
) -> None:
    with warehouse.table().update_schema() as update:
        update.add_column("colour", StringType())
    job.schema = SCHEMA.append(pa.field("colour", pa.string()))
    job.rows = lambda epoch, subtask: rows(epoch, subtask).append_column("colour", pa.array(["red"]))
    job.run_to(3)
    found = warehouse.table().scan().to_arrow().sort_by("row")["colour"].to_pylist()
    assert found == [None, None, "red"]


def test_a_widened_column_continues_in_a_new_file(warehouse: Warehouse, job: SinkJob) -> None:
    with warehouse.table().update_schema() as update:
        update.update_column("row", LongType())
    job.run_to(4)
    assert warehouse.rows() == [1, 2, 3, 4]
    assert warehouse.rows(row_filter="row >= 2 and row <= 3") == [2, 3]
    assert len(list(warehouse.table().scan().plan_files())) == 2


def test_a_renamed_column_stops_the_job_with_its_name(warehouse: Warehouse, job: SinkJob) -> None:
    with warehouse.table().update_schema() as update:
        update.rename_column("country", "land")
    with pytest.raises(InvalidInputError, match="lacks a column of the rows: country"):
        job.attempt(0)


def test_rows_written_before_a_rename_are_found_under_the_new_name(
    warehouse: Warehouse, job: SinkJob
) -> None:
    job.publish([job.attempt(0).finish(finish_files=True)])
    with warehouse.table().update_schema() as update:
        update.rename_column("country", "land")
    job.commit()
    assert warehouse.table().scan().to_arrow()["land"].to_pylist() == ["DE"] * 3


def test_a_required_column_that_rows_lack_stops_the_job_with_its_name(
    warehouse: Warehouse, job: SinkJob
) -> None:
    with warehouse.table().update_schema(allow_incompatible_changes=True) as update:
        update.add_column("colour", StringType(), required=True)
    with pytest.raises(InvalidInputError, match="requires: colour"):
        job.attempt(0)


def test_files_of_an_older_partition_spec_are_finished_under_it(warehouse: Warehouse, job: SinkJob) -> None:
    with warehouse.table().update_spec() as update:
        update.add_field("row", BucketTransform(4), "row_bucket")
        update.add_identity("country")
    job.run_to(4)
    assert warehouse.rows() == [1, 2, 3, 4]
    assert warehouse.rows(row_filter="country == 'DE'") == [1, 2, 3, 4]
    specs = {manifest.partition_spec_id for manifest in manifests(warehouse)}
    assert len(specs) == 2


def test_small_manifests_are_merged_where_the_table_asks_for_it(warehouse: Warehouse) -> None:
    settings = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    job = warehouse.job(rows, SCHEMA, roll=EVERY_EPOCH, properties=settings)
    job.parallelism = 1
    job.run_to(4)
    assert warehouse.rows() == [1, 2, 3, 4]
    assert len(manifests(warehouse)) < 4


def test_a_table_that_moved_stops_the_job(warehouse: Warehouse, job: SinkJob) -> None:
    elsewhere = f"file://{warehouse.root}/elsewhere"
    warehouse.table().transaction().set_properties({"write.data.path": elsewhere}).commit_transaction()
    with pytest.raises(IncompatibleStateError, match="another table"):
        job.attempt(0)


def test_a_table_that_was_dropped_and_made_again_stops_a_job_with_open_files(
    warehouse: Warehouse, job: SinkJob
) -> None:
    warehouse.catalog.load().drop_table(TABLE)
    with pytest.raises(IncompatibleStateError, match="another table"):
        job.attempt(0)


def manifests(warehouse: Warehouse) -> list[object]:
    table = warehouse.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return list(snapshot.manifests(table.io))
