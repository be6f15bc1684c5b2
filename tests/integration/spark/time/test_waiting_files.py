"""Files that are finished, or shown, because time passes while nothing brings rows."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.spark.pipelines import (
    events,
    read_output,
    read_stream,
    run_available,
    wait_for,
    write_input,
)

import lakestate as ls
from lakestate.sinks import IcebergSink
from lakestate.sinks.sink import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDLE = timedelta(milliseconds=100)
MOMENT = timedelta(milliseconds=300)


def pipeline(spark: SparkSession, folder: Path, sink: Sink) -> ls.Pipeline:
    backend = ls.ParquetBackend(f"file://{folder}/checkpoints", cache_dir=folder / "cache")
    made = ls.Pipeline("job", backend, parallelism=1, idle=IDLE)
    made.source(read_stream(spark, folder / "in")).sink("out", sink)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_input(tmp_path / "in", 0, events(5, 100))
    return tmp_path


def test_a_file_that_is_old_enough_is_finished_although_the_stream_is_silent(
    spark: SparkSession, folder: Path
) -> None:
    sink = ls.ParquetSink(f"file://{folder}/out", roll=ls.Roll(interval=MOMENT))
    query = pipeline(spark, folder, sink).start()
    wait_for(lambda: len(read_output(folder / "out")) == 100, query)
    query.stop()
    assert [progress.rows_total for progress in query.recentProgress] == [100, 0]
    # Nothing is open any more, and so nothing more is due.
    assert run_available(pipeline(spark, folder, sink)).recentProgress == []


def test_rows_of_an_open_file_are_shown_although_the_stream_is_silent(
    spark: SparkSession, folder: Path
) -> None:
    roll = ls.Roll(interval=None, visible=MOMENT)
    sink = IcebergSink("shop.events", catalog=f"file://{folder}/warehouse", roll=roll)
    query = pipeline(spark, folder, sink).start()

    def shown() -> int:
        return sink.load_table().scan().to_arrow().num_rows if (folder / "warehouse").exists() else 0

    wait_for(lambda: shown() == 100, query)
    query.stop(finish_files=True)
    assert [progress.outputs["out"].shown for progress in query.recentProgress if progress.outputs] == [
        0,
        1,
        0,
    ]
    operations = [each.summary.operation.value for each in sink.load_table().metadata.snapshots]
    assert (operations, shown()) == (["append", "replace"], 100)
