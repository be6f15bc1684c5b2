"""Jobs of a file sink, and the files that readers see of it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from tests.support.sinks.sink_job import SCHEMA, DictView, SinkJob, numbered_rows

from lakestate.sinks import Roll
from lakestate.sinks.files.open_files import OpenFiles
from lakestate.sinks.files.sink import FileSink

NEVER = Roll(interval=None)


def file_sink_job(
    root: Path, sink: Callable[[str], FileSink], parallelism: int = 2, count: int = 50
) -> SinkJob:
    made = sink(f"file://{root}")
    # Every attempt gets the sink as Spark ships it.
    return SinkJob(lambda: pickle.loads(pickle.dumps(made)), numbered_rows(count), parallelism)


def visible_files(root: Path) -> list[Path]:
    return sorted(file for file in root.rglob("*") if file.is_file() and ".lakestate" not in file.parts)


def visible_rows(root: Path) -> list[int]:
    return sorted(ds.dataset(root, format="parquet", partitioning="hive").to_table()["row"].to_pylist())


def open_paths(job: SinkJob) -> list[str]:
    return [record.path for record in OpenFiles(DictView(job.published.state)).records()]  # type: ignore[arg-type]


def no_rows() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=SCHEMA)


def one_row(country: str) -> pa.RecordBatch:
    return pa.record_batch({"row": [1], "country": [country], "text": ["t"]}, schema=SCHEMA)
