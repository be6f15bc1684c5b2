"""A Delta table in a folder, and a job that writes to it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from tests.support.sinks.sink_job import SCHEMA, Rows, SinkJob, numbered_rows

from lakestate.sinks.delta.sink import DeltaSink
from lakestate.sinks.rolling import Roll

EVERY_EPOCH = Roll(interval="0 seconds")
"""Each epoch finishes its files."""

NEVER = Roll(interval=None)
"""Files stay open until the job stops."""


@dataclass
class DeltaFolder:
    """A table, and what a test looks at in it."""

    root: Path

    def sink(self, **settings: Any) -> DeltaSink:
        return DeltaSink(f"file://{self.root}", **{"roll": EVERY_EPOCH, **settings})

    def table(self) -> DeltaTable:
        return DeltaTable(self.root)

    def rows(self) -> list[int]:
        """The numbers of all rows, sorted."""
        return sorted(pa.table(self.table().to_pyarrow_table(columns=["row"]))["row"].to_pylist())

    def all_rows(self) -> list[dict[str, Any]]:
        return list(self.table().to_pyarrow_table().to_pylist())

    def epochs(self) -> list[str]:
        """The epochs of all commits of a job, in order."""
        found = [each.get("lakestate.epoch") for each in reversed(self.table().history())]
        return [epoch for epoch in found if epoch is not None]

    def actions(self, kind: str) -> list[dict[str, Any]]:
        """All actions of a kind in the log, in order."""
        logged = (int(commit.stem) for commit in (self.root / "_delta_log").glob("*.json"))
        lines = [line for version in sorted(logged) for line in self.actions_of(version)]
        return [line[kind] for line in lines if kind in line]

    def actions_of(self, version: int) -> list[dict[str, Any]]:
        """All actions of one commit."""
        commit = self.root / "_delta_log" / f"{version:020d}.json"
        return [json.loads(line) for line in commit.read_text().splitlines()]

    def job(self, rows: Rows | None = None, schema: pa.Schema = SCHEMA, **settings: Any) -> SinkJob:
        """A job whose start has checked the sink."""
        self.sink(**settings).check(schema)
        return SinkJob(lambda: self.sink(**settings), rows or numbered_rows(20), schema=schema)  # type: ignore[arg-type, return-value]


def one_batch(rows: pa.RecordBatch) -> Rows:
    """The same rows for the first subtask in every epoch, and none for the others."""
    return lambda epoch, subtask: rows if subtask == 0 else rows.slice(0, 0)
