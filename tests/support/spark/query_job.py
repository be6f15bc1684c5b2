"""A job whose queries tests start and stop: totals per user and a copy of all rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.support.spark.pipelines import (
    events,
    read_output,
    read_stream,
    spark_totals,
    state_rows,
    write_input,
)
from tests.support.spark.totals import Totals

import lakestate as ls
from lakestate.testing.faults import FaultyStore, Hook

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "totals"


class Job:
    """Totals per user and a copy of all rows; drivers of it share nothing but the store."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.files: list[pa.Table] = []

    def give(self) -> None:
        """One more input file."""
        self.files.append(events(len(self.files), 100))
        write_input(self.folder / "in", len(self.files) - 1, self.files[-1])

    def backend(self, hook: Hook | None = None) -> ls.ParquetBackend:
        """A driver's own, with something that happens at calls of its store. Subtasks are not affected."""
        backend = ls.ParquetBackend(f"file://{self.folder}/checkpoints", cache_dir=self.folder / "cache")
        if hook is not None:
            vars(backend)["_store"] = FaultyStore(backend._store, hook)
        return backend

    def pipeline(
        self, hook: Hook | None = None, files_per_batch: int = 1, roll: ls.Roll | None = None
    ) -> ls.Pipeline:
        pipeline = ls.Pipeline(JOB, self.backend(hook), parallelism=2)
        rows = pipeline.source(read_stream(self.spark, self.folder / "in", files_per_batch=files_per_batch))
        rows.key_by("user").apply("totals", Totals())
        rows.sink("out", ls.ParquetSink(f"file://{self.folder}/out", roll=roll or ls.Roll()))
        return pipeline

    def manifest(self) -> Any:
        return self.backend().load_checkpoint_metadata(JOB)

    def check(self) -> None:
        """State and output of a drained job are those of all input, once."""
        found = state_rows(self.backend(), JOB, "totals", Totals(), "totals")
        assert found == spark_totals(self.spark, self.folder / "in")
        rows = pa.concat_tables(self.files).to_pylist()
        assert sorted(read_output(self.folder / "out"), key=str) == sorted(rows, key=str)
