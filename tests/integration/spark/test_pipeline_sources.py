"""Sources of every kind continue where they were after Spark's own checkpoint is deleted."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from tests.support.spark.counting_source import CountingSource
from tests.support.spark.pipelines import events, read_output, read_stream, write_input

import lakestate as ls
from lakestate.sinks.formats.parquet.sink import ParquetSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_sources_continue_exactly_after_sparks_checkpoint_directory_is_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    backend = ls.ParquetBackend(f"file://{tmp_path}/checkpoints", cache_dir=tmp_path / "cache")
    spark.dataSource.register(CountingSource)

    def run_until(count: int, parallelism: int) -> None:
        pipeline = ls.Pipeline("mixed", backend, parallelism=parallelism)
        rate = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
        counted = spark.readStream.format("counting").option("last", 12).load()
        files = read_stream(spark, tmp_path / "in")
        for name, frame in (("rate", rate), ("counted", counted), ("files", files)):
            source = pipeline.source(frame, name=name)
            source.sink(name, ParquetSink(f"file://{tmp_path}/{name}"))
        query = pipeline.start(spark_checkpoint=tmp_path / "spark")
        deadline = time.monotonic() + 60
        while query.lastProgress is None or query.lastProgress.epoch < count:
            assert time.monotonic() < deadline
            assert not query.awaitTermination(0.05)
        query.stop(finish_files=True)
        assert list((tmp_path / "spark").iterdir()) == []

    rows = [events(number, 20) for number in range(3)]
    write_input(tmp_path / "in", 0, rows[0])
    run_until(2, 2)
    write_input(tmp_path / "in", 1, rows[1])
    write_input(tmp_path / "in", 2, rows[2])
    first = backend.load_checkpoint_metadata("mixed")
    run_until(int(first.epoch) + 3, 3)
    counted = sorted(row["n"] for row in read_output(tmp_path / "counted"))
    assert counted == list(range(12))
    numbers = sorted(row["value"] for row in read_output(tmp_path / "rate"))
    assert numbers == list(range(len(numbers)))
    assert numbers
    found = sorted(read_output(tmp_path / "files"), key=str)
    assert found == sorted(pa.concat_tables(rows).to_pylist(), key=str)
    manifest = backend.load_checkpoint_metadata("mixed")
    assert [source.source for source in manifest.sources] == ["rate", "counted", "files"]
    assert json.loads(manifest.sources[1].offsets) == {"next": 12}
