"""`format("lakestate")` with Spark's calls made by hand: what holds when any process fails or is late."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from tests.support.sinks.sink_query import Rows, SinkQuery

import lakestate as ls
from lakestate.sinks import EventTime, ParquetFormat
from lakestate.spark.data_source.commit import WrittenPartition
from lakestate.spark.data_source.job import OpenedJob, writers_with_open_files
from lakestate.spark.data_source.options import DataSourceOptions

SCHEMA = pa.schema([("n", pa.int64()), ("kind", pa.string())])
NEVER_ROLLS = {"rollInterval": "none"}


def rows(*numbers: int) -> Rows:
    return [pa.record_batch({"n": numbers, "kind": [f"kind-{n % 2}" for n in numbers]}, schema=SCHEMA)]


def query(folder: Path, **options: str) -> SinkQuery:
    return SinkQuery(folder, SCHEMA, {**NEVER_ROLLS, **options})


def numbers(found: SinkQuery) -> list[int]:
    table = found.visible()
    return sorted(table["n"].to_pylist()) if table.num_rows else []


def finished(found: SinkQuery) -> list[int]:
    ls.finish_files(**found.options)
    return numbers(found)


def newest(found: SinkQuery) -> int:
    options = DataSourceOptions.of(found.options)
    manifest = OpenedJob(options, SCHEMA).newest()
    return 0 if manifest is None else int(manifest.epoch)


def test_rows_are_visible_when_files_are_finished_and_not_before(tmp_path: Path) -> None:
    written = query(tmp_path)
    for batch in range(3):
        written.run(batch, [rows(batch), rows(10 + batch)])
    assert numbers(written) == []
    assert len(ls.finish_files(**written.options)) == 2
    assert numbers(written) == [0, 1, 2, 10, 11, 12]
    assert written.hidden_files() == []


def test_a_query_continues_after_its_files_were_finished(tmp_path: Path) -> None:
    written = query(tmp_path)
    written.run(0, [rows(0)])
    assert finished(written) == [0]
    written.restarted("run-1").run(1, [rows(1)])
    assert numbers(written) == [0]
    assert finished(written) == [0, 1]
    assert ls.finish_files(**written.options) == []


def test_a_published_batch_that_spark_runs_again_changes_nothing(tmp_path: Path) -> None:
    written = query(tmp_path)
    written.run(0, [rows(0)])
    written.run(1, [rows(1)])
    written.restarted("run-1").run(1, [rows(1)])
    assert newest(written) == 2
    assert finished(written) == [0, 1]


def test_a_published_batch_whose_commit_was_cut_off_is_committed_when_it_comes_back(tmp_path: Path) -> None:
    written = query(tmp_path, rollInterval="0 seconds")
    written.run(0, [rows(0)])
    shown = written.visible_files()
    assert len(shown) == 1
    # As if the driver had failed between publishing and committing.
    marker = next((tmp_path / "checkpoint").rglob("committed.json"))
    marker.unlink()
    hidden = tmp_path / "out" / ".lakestate" / "open"
    pre_commit_name = _hidden_name_of(written)
    shown[0].rename(hidden / pre_commit_name)
    assert numbers(written) == []
    written.restarted("run-1").run(0, [rows(0)])
    assert numbers(written) == [0]
    assert marker.exists()


def _hidden_name_of(found: SinkQuery) -> str:
    from lakestate.coordinator.epoch_plan import decode_pre_commits
    from lakestate.sinks.files.pre_commit import LocalFile, PreCommit

    manifest = OpenedJob(DataSourceOptions.of(found.options), SCHEMA).newest()
    assert manifest is not None
    parts = decode_pre_commits(manifest.sinks[0].data, "manifest")
    content = PreCommit.decode(parts[0]).finished[0].content
    assert isinstance(content, LocalFile)
    return content.temporary


def test_a_task_that_runs_twice_counts_once(tmp_path: Path) -> None:
    written = query(tmp_path)
    written.run(0, [rows(0), rows(10)])
    planned = written.planned()
    first = written.written(planned, 1, 0, rows(1))
    # A second attempt, and a speculative copy of the other partition, of which Spark takes one.
    again = written.written(planned, 1, 0, rows(1))
    other = [written.written(planned, 1, 1, rows(11)) for _ in range(2)]
    assert first != again
    written.commit([again, other[0]], 1)
    written.run(2, [rows(2), rows(12)])
    assert finished(written) == [0, 1, 2, 10, 11, 12]


def test_tasks_of_a_batch_that_was_never_committed_leave_nothing_visible(tmp_path: Path) -> None:
    written = query(tmp_path, rollInterval="0 seconds")
    planned = written.planned()
    # Among them one of a partition that does not come back.
    for partition in (0, 3):
        written.written(planned, 0, partition, rows(partition))
    assert len(written.hidden_files()) == 2
    again = written.restarted("run-1")
    again.run(0, [rows(0)])
    assert numbers(again) == [0]
    for batch in (1, 2):
        again.restarted(f"run-{batch + 1}").run(batch, [rows(batch)])
    # The first epoch of a run cleans up what dead attempts have left.
    assert again.hidden_files() == []
    assert numbers(again) == [0, 1, 2]


def test_a_driver_that_was_overtaken_cannot_commit(tmp_path: Path) -> None:
    zombie, successor = query(tmp_path), query(tmp_path).restarted("run-1")
    zombie.run(0, [rows(0)])
    planned = zombie.planned()
    message = zombie.written(planned, 1, 0, rows(1))
    successor.run(1, [rows(1)])
    successor.run(2, [rows(2)])
    with pytest.raises(ls.ConflictError, match="another driver has published"):
        zombie.commit([message], 1)
    assert finished(successor) == [0, 1, 2]


def test_a_zombie_whose_batch_its_successor_published_finds_it_done(tmp_path: Path) -> None:
    zombie, successor = query(tmp_path), query(tmp_path).restarted("run-1")
    planned = zombie.planned()
    message = zombie.written(planned, 0, 0, rows(0))
    successor.run(0, [rows(0)])
    zombie.commit([message], 0)
    assert newest(successor) == 1
    assert finished(successor) == [0]


def test_files_finished_under_a_running_query_make_it_fail_and_lose_nothing(tmp_path: Path) -> None:
    written = query(tmp_path)
    written.run(0, [rows(0)])
    planned = written.planned()
    message = written.written(planned, 1, 0, rows(1))
    assert finished(written) == [0]
    with pytest.raises(ls.ConflictError):
        written.commit([message], 1)
    written.restarted("run-1").run(1, [rows(1)])
    assert finished(written) == [0, 1]


def test_the_number_of_partitions_may_change_in_every_batch(tmp_path: Path) -> None:
    written = query(tmp_path)
    expected = []
    for batch, count in enumerate([3, 1, 5, 2, 1, 4]):
        parts = [batch * 10 + number for number in range(count)]
        written.run(batch, [rows(part) for part in parts])
        expected += parts
    assert len(written.hidden_files()) == 5
    assert finished(written) == sorted(expected)
    assert len(written.visible_files()) == 5


def test_files_of_a_partition_number_that_does_not_come_back_are_finished_in_time(tmp_path: Path) -> None:
    query(tmp_path).run(0, [rows(0), rows(10)])
    written = query(tmp_path, rollInactivity="0 seconds")
    assert numbers(written) == []
    written.run(1, [rows(1)])
    # The second file was not touched by the second batch, and nobody but the driver looks at it.
    assert numbers(written) == [0, 1, 10]


def test_a_writer_without_open_files_is_forgotten(tmp_path: Path) -> None:
    written = query(tmp_path, rollInterval="0 seconds")
    written.run(0, [rows(0), rows(10), rows(20)])
    written.run(1, [rows(1)])
    manifest = OpenedJob(DataSourceOptions.of(written.options), SCHEMA).newest()
    assert manifest is not None
    assert [entry.operator_id for entry in manifest.operators] == ["writer-00000"]
    assert numbers(written) == [0, 1, 10, 20]


def test_the_state_stays_small_in_a_long_run(tmp_path: Path) -> None:
    written = query(tmp_path, keepEpochs="2")
    for batch in range(40):
        written.run(batch, [rows(batch)])
    manifest = OpenedJob(DataSourceOptions.of(written.options), SCHEMA).newest()
    assert manifest is not None
    assert writers_with_open_files(manifest) == {"writer-00000"}
    assert manifest.summary.file_count <= 8
    state = tmp_path / "checkpoint" / "lakestate"
    assert len(list(state.rglob("epochs/*.json"))) <= 12
    assert finished(written) == list(range(40))


def test_two_queries_share_a_directory_and_leave_each_other_alone(tmp_path: Path) -> None:
    one = query(tmp_path)
    other = query(tmp_path, checkpointLocation=str(tmp_path / "other"))
    other.query_id = "other"
    for batch in range(12):
        one.restarted(f"run-{batch}").run(batch, [rows(batch)])
        other.restarted(f"run-{batch}").run(batch, [rows(100 + batch)])
    assert finished(one) == list(range(12))
    assert finished(other) == [*range(12), *range(100, 112)]


def test_state_of_another_query_is_refused(tmp_path: Path) -> None:
    query(tmp_path).run(0, [rows(0)])
    other = query(tmp_path)
    other.query_id = "other"
    with pytest.raises(ls.IncompatibleStateError, match="another query"):
        other.run(0, [rows(1)])


@pytest.mark.parametrize("batch", [0, 3])
def test_a_batch_that_does_not_follow_is_refused(tmp_path: Path, batch: int) -> None:
    written = query(tmp_path)
    written.run(0, [rows(0)])
    written.run(1, [rows(1)])
    with pytest.raises(ls.IncompatibleStateError, match="are from different times") as refused:
        written.run(batch, [rows(9)])
    assert refused.value.expected == "batch 2"


def test_a_query_that_has_lost_its_state_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ls.IncompatibleStateError, match="are from different times") as refused:
        query(tmp_path).run(7, [rows(0)])
    assert refused.value.expected == "batch 0"


def test_files_are_finished_when_the_watermark_has_passed_their_hour(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    hour_us = 3_600_000_000
    written = SinkQuery(
        tmp_path,
        schema,
        {
            **NEVER_ROLLS,
            "partitionBy": "hour=%Y-%m-%dT%H",
            "eventTime": "ts",
            "watermarkDelay": "10 minutes",
            "rollPastWatermark": "0 seconds",
        },
    )

    def at(number: int, hours: float) -> Rows:
        return [pa.record_batch({"n": [number], "ts": [round(hours * hour_us)]}, schema=schema)]

    # A time of the year 55840 is not believed.
    written.run(0, [at(0, 0.5) + at(9, 472_222_222), at(1, 1.1)])
    # The watermark of a batch comes from the rows of those before it: 0:56, then 1:02.
    written.run(1, [at(2, 1.2)])
    assert numbers(written) == []
    written.run(2, [at(3, 1.3)])
    assert numbers(written) == [0]
    assert [path.parent.name for path in written.visible_files()] == ["hour=1970-01-01T00"]


def test_a_message_tells_which_epoch_its_task_went_on_from(tmp_path: Path) -> None:
    written = query(tmp_path)
    first = WrittenPartition.decode(written.written(written.planned(), 0, 3, rows(0)).data)
    assert (first.writer, first.parent, first.batch.batch_id) == ("writer-00003", None, 0)


def test_parts_of_two_batches_are_refused(tmp_path: Path) -> None:
    written = query(tmp_path)
    planned = written.planned()
    message = written.written(planned, 0, 0, rows(0))
    with pytest.raises(ls.InvalidInputError, match="did not write one batch"):
        written.commit([message, message], 0)
    with pytest.raises(ls.InvalidInputError, match="did not write one batch"):
        written.commit([message], 1)
    with pytest.raises(ls.InvalidInputError, match="missing"):
        written.commit([message, None], 0)
    assert newest(written) == 0


def test_output_mode_complete_is_refused(tmp_path: Path) -> None:
    written = query(tmp_path)
    with pytest.raises(ls.InvalidInputError, match="never rewritten"):
        written.source().streamWriter(written.schema, overwrite=True)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"rollIntervall": "1 minute"}, "rollintervall"),
        ({"format": "orc"}, "option format"),
        ({"compression": "brotli"}, "compression"),
        ({"rowGroupSize": "much"}, "size"),
        ({"rollInterval": "soon"}, "option rollInterval"),
        ({"openFilesMax": "-1"}, "option openFilesMax"),
        ({"dropEventTime": "maybe"}, "option dropEventTime"),
        ({"format": "json", "rowGroupSize": "1MB"}, "option rowGroupSize"),
        ({"partitionBy": "day=%Y"}, "option partitionBy"),
        ({"partitionBy": "day=%Q", "eventTime": "ts"}, "option partitionBy"),
        ({"rollPastWatermark": "1 minute"}, "option rollPastWatermark"),
        ({"path": ""}, "option path"),
        ({"checkpointLocation": "hdfs://name/x"}, "hdfs://name/x"),
        ({"jobId": "a/b"}, "a/b"),
        ({"keepEpochs": "0"}, "option keepEpochs"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, str], named: str) -> None:
    given = {"path": "/data/out", "checkpointLocation": "/data/checkpoint", **options}
    with pytest.raises(ls.InvalidInputError) as refused:
        DataSourceOptions.of(given)
    assert named in str(refused.value)


def test_without_a_checkpoint_location_there_is_no_place_for_state() -> None:
    with pytest.raises(ls.InvalidInputError, match="stateLocation"):
        DataSourceOptions.of({"path": "/data/out"})


def test_options_count_in_any_case_and_reach_the_sink() -> None:
    found = DataSourceOptions.of(
        {
            "PATH": "s3a://bucket/out",
            "statelocation": "s3://bucket/state",
            "JobId": "mine",
            "compression": "SNAPPY",
            "rowgroupsize": "64MB",
            "partitionBy": "country, day=%Y-%m-%d",
            "eventTime": "ts",
            "rollSize": "1GB",
            "rollInactivity": "10 minutes",
            "openFilesMax": "7",
            "prefix": "orders",
            "suffix": "-v1",
            "store.endpoint": "http://localhost:1",
        }
    )
    assert found.sink == ls.FileSink(
        "s3://bucket/out",
        format=ParquetFormat(compression="snappy", row_group_bytes="64MB"),
        partition_by=("country", EventTime("day=%Y-%m-%d")),
        roll=ls.Roll(bytes="1GB", inactivity="10 minutes"),
        options={"endpoint": "http://localhost:1"},
        open_files_max=7,
        prefix="orders",
        suffix="-v1",
    )
    assert found.state == ls.StoreConfig("s3://bucket/state", {"endpoint": "http://localhost:1"})
    assert found.job_id == "mine"


def test_files_cannot_be_read_through_the_data_source(tmp_path: Path) -> None:
    with pytest.raises(ls.InvalidInputError, match=r"spark\.read\.parquet"):
        query(tmp_path).source().schema()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"format": "parquet"}, {"format": "json"}),
        ({"format": "json"}, {"format": "parquet"}),
        ({"format": "json", "compression": "gzip"}, {"format": "json"}),
    ],
)
def test_an_open_file_of_another_format_is_not_finished_wrongly(
    tmp_path: Path, before: dict[str, str], after: dict[str, str]
) -> None:
    query(tmp_path, **before).run(0, [rows(0)])
    changed = query(tmp_path, **after)
    with pytest.raises(ls.IncompatibleStateError, match="another format"):
        changed.run(1, [rows(1)])
    assert changed.visible_files() == []
    ls.finish_files(**query(tmp_path, **before).options)
    changed.run(1, [rows(1)])
    ls.finish_files(**changed.options)
    assert len(changed.visible_files()) == 2
