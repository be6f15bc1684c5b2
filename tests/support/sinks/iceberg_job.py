"""A warehouse in a folder, and a job that writes to a table of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table
from tests.support.sinks.sink_job import SCHEMA, Rows, SinkJob, numbered_rows

from lakestate.sinks.iceberg.catalog import IcebergCatalog
from lakestate.sinks.iceberg.sink import IcebergSink
from lakestate.sinks.rolling import Roll

TABLE = "shop.orders"
EVERY_EPOCH = Roll(interval="0 seconds")
"""Each epoch finishes its files."""

NEVER = Roll(interval=None)
"""Files stay open until the job stops."""


@dataclass
class Warehouse:
    """An embedded catalog, and what a test looks at in it."""

    root: Path

    @property
    def catalog(self) -> IcebergCatalog:
        return IcebergCatalog.sqlite(f"file://{self.root}")

    def sink(self, **settings: Any) -> IcebergSink:
        return IcebergSink(TABLE, **{"catalog": self.catalog, "roll": EVERY_EPOCH, **settings})

    def table(self) -> Table:
        return self.catalog.load().load_table(TABLE)

    def rows(self, **scan: Any) -> list[int]:
        """The numbers of all rows, sorted."""
        return sorted(self.table().scan(selected_fields=("row",), **scan).to_arrow()["row"].to_pylist())

    def epochs(self) -> list[str]:
        """The epochs of all snapshots of a job, in order."""
        snapshots = self.table().metadata.snapshots
        found = (each.summary.additional_properties.get("lakestate.epoch") for each in snapshots)
        return [epoch for epoch in found if epoch is not None]

    def job(self, rows: Rows | None = None, schema: pa.Schema = SCHEMA, **settings: Any) -> SinkJob:
        return self.job_of(lambda: self.sink(**settings), rows or numbered_rows(20), schema)

    def job_of(self, open_sink: Callable[[], IcebergSink], rows: Rows, schema: pa.Schema = SCHEMA) -> SinkJob:
        return SinkJob(open_sink, rows, schema=schema)  # type: ignore[arg-type]


def one_batch(rows: pa.RecordBatch) -> Rows:
    """The same rows for the first subtask in every epoch, and none for the others."""
    return lambda epoch, subtask: rows if subtask == 0 else rows.slice(0, 0)
