"""A batch of `format("lakestate")` that returns: the published one, or one that was planned a second time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from tests.support.sinks.sink_query import Rows, SinkQuery

import lakestate as ls
from lakestate.protocol.metadata import SourceOffsets
from lakestate.spark.data_source.options import DataSourceOptions
from lakestate.spark.data_source.position import BATCHES, BatchPosition, check_same_plan

SCHEMA = pa.schema([("n", pa.int64())])


def rows(*numbers: int) -> Rows:
    return [pa.record_batch({"n": numbers}, schema=SCHEMA)]


def query(folder: Path, **options: str) -> SinkQuery:
    return SinkQuery(folder, SCHEMA, {"rollInterval": "0 seconds", **options})


def plan(found: SinkQuery, batch: int, offsets: str) -> None:
    """What Spark writes down before it runs a batch."""
    log = found.folder / "checkpoint" / "offsets" / str(batch)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"v1\n{{}}\n{offsets}")


def numbers(found: SinkQuery) -> list[int]:
    return sorted(found.visible()["n"].to_pylist())


class TestWithoutSparksOffsets:
    def test_a_batch_with_more_rows_than_were_published_is_refused(self, tmp_path: Path) -> None:
        query(tmp_path).run(0, [rows(1), rows(2)])
        query(tmp_path).run(1, [rows(3), rows(4)])
        with pytest.raises(ls.IncompatibleStateError, match="a batch was planned a second time") as refused:
            query(tmp_path).restarted("run-1").run(1, [rows(3, 5), rows(4)])
        assert refused.value.found == "batch 1 with 3 rows"
        assert refused.value.expected == "batch 1 with 2 rows, which is published"
        assert numbers(query(tmp_path)) == [1, 2, 3, 4]

    def test_the_same_rows_in_other_partitions_are_the_same_batch(self, tmp_path: Path) -> None:
        query(tmp_path).run(0, [rows(1), rows(2, 3)])
        query(tmp_path).restarted("run-1").run(0, [[*rows(3), *rows(1, 2)]])
        assert numbers(query(tmp_path)) == [1, 2, 3]

    def test_finishing_files_does_not_forget_how_many_rows_there_were(self, tmp_path: Path) -> None:
        written = query(tmp_path, rollInterval="none")
        written.run(0, [rows(1, 2)])
        ls.finish_files(**written.options)
        written.restarted("run-1").run(0, [rows(1, 2)])
        with pytest.raises(ls.IncompatibleStateError, match="planned a second time"):
            written.restarted("run-2").run(0, [rows(1, 2, 3)])


class TestWithSparksOffsets:
    def test_as_many_rows_from_elsewhere_are_refused(self, tmp_path: Path) -> None:
        written = query(tmp_path)
        plan(written, 0, '{"topic":{"0":2,"1":0}}')
        written.run(0, [rows(1, 2)])
        plan(written, 0, '{"topic":{"0":1,"1":1}}')
        with pytest.raises(ls.IncompatibleStateError, match="and offsets with digest"):
            written.restarted("run-1").run(0, [rows(1, 7)])

    def test_a_query_that_gives_other_rows_each_time_is_not_in_the_way_of_the_same_batch(
        self, tmp_path: Path
    ) -> None:
        written = query(tmp_path)
        plan(written, 0, '{"topic":{"0":2}}')
        written.run(0, [rows(1, 2)])
        written.restarted("run-1").run(0, [rows(1, 2, 3)])
        assert numbers(written) == [1, 2]

    @pytest.mark.parametrize(
        ("options", "found"),
        [
            ({"checkpointLocation": "/c"}, "file:///c"),
            ({"checkpointLocation": "/c", "stateLocation": "s3://b/s"}, "file:///c"),
            ({"checkpointLocation": "s3a://b/c"}, "s3://b/c"),
            ({"checkpointLocation": "s3a://b/c", "stateLocation": "/s"}, None),
            ({"checkpointLocation": "hdfs://h/c", "stateLocation": "/s"}, None),
            ({"stateLocation": "/s"}, None),
        ],
    )
    def test_they_are_read_only_where_we_know_how(self, options: dict[str, str], found: str | None) -> None:
        checkpoint = DataSourceOptions.of({"path": "/out", **options}).checkpoint
        assert (None if checkpoint is None else checkpoint.url) == found


class TestWhatIsStored:
    STORED = '{"query_id":"q","batch_id":4,"run_id":"r"}'

    def test_a_position_from_before_rows_were_counted_is_taken_for_the_batch(self) -> None:
        manifest = _Manifest((SourceOffsets(BATCHES, self.STORED, None),))
        reached = BatchPosition.from_manifest(manifest)  # type: ignore[arg-type]
        assert reached == BatchPosition("q", 4, "r")
        check_same_plan(reached, BatchPosition("q", 4, "r", 100, "00"), "state")

    def test_what_is_not_known_is_not_stored(self) -> None:
        assert BatchPosition("q", 4, "r").offsets(None).offsets == self.STORED


class _Manifest:
    epoch, job_id = 5, "job"

    def __init__(self, sources: tuple[SourceOffsets, ...]) -> None:
        self.sources = sources
