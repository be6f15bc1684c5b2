"""Spark's side of `format("lakestate")` without Spark: the calls that it makes for every batch.

A writer is made and pickled on the driver, unpickled in every task, and another one commits.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_schema

from lakestate.spark.data_source.source import BatchWriter, LakestateDataSource, WrittenMessage

Rows = Sequence[pa.RecordBatch]


class SinkQuery:
    """A query that writes to the sink. Batches are given one by one; a run is one start of it."""

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema,
        options: Mapping[str, str] | None = None,
        query_id: str = "query",
    ) -> None:
        self.folder = folder
        self.query_id = query_id
        self._rows = schema
        self.schema = from_arrow_schema(schema)
        self.options = {
            "path": str(folder / "out"),
            "checkpointLocation": str(folder / "checkpoint"),
            "cacheDir": str(folder / "cache"),
            **(options or {}),
        }
        self.run_id = "run-0"

    def restarted(self, run_id: str) -> SinkQuery:
        """The query after another start."""
        again = SinkQuery(self.folder, self._rows, self.options, self.query_id)
        again.run_id = run_id
        return again

    def source(self) -> LakestateDataSource:
        return LakestateDataSource({name.lower(): value for name, value in self.options.items()})

    def planned(self) -> bytes:
        """What the driver ships to the tasks of a batch."""
        return pickle.dumps(self.source().streamWriter(self.schema, overwrite=False))

    def written(self, planned: bytes, batch_id: int, partition: int, rows: Rows) -> WrittenMessage:
        """What one task does."""
        TaskContext._setTaskContext(None)
        context = TaskContext._getOrCreate()
        context._partitionId = partition
        context._localProperties = {
            "sql.streaming.queryId": self.query_id,
            "streaming.sql.batchId": str(batch_id),
            "spark.jobGroup.id": self.run_id,
        }
        try:
            writer: BatchWriter = pickle.loads(planned)
            return pickle.loads(pickle.dumps(writer.write(iter(rows))))
        finally:
            TaskContext._setTaskContext(None)

    def commit(self, messages: Sequence[Any], batch_id: int) -> None:
        """What the driver does when all tasks have finished."""
        self.source().streamWriter(self.schema, overwrite=False).commit(list(messages), batch_id)

    def run(self, batch_id: int, partitions: Sequence[Rows]) -> None:
        """A whole batch."""
        planned = self.planned()
        messages = [self.written(planned, batch_id, number, rows) for number, rows in enumerate(partitions)]
        self.commit(messages, batch_id)

    def visible(self) -> pa.Table:
        """What a reader of the directory sees."""
        files = [str(path) for path in self.visible_files()]
        return ds.dataset(files, format="parquet").to_table() if files else pa.table({})

    def visible_files(self) -> list[Path]:
        out = self.folder / "out"
        return sorted(
            path
            for path in out.rglob("*.*")
            if path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(out).parts)
        )

    def hidden_files(self) -> list[Path]:
        return sorted((self.folder / "out" / ".lakestate" / "open").glob("*"))
