"""The Parquet sink on real state tables: restored in every epoch, at any parallelism, and compacted."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow.dataset as ds
from tests.support.sinks.sink_job import JOB, SCHEMA, SINK, numbered_rows, permit_for

from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.protocol.values import Epoch, TaskInfo
from lakestate.sinks import ParquetSink, Roll, SinkContext
from lakestate.sinks.files.local.output import LocalOutput
from lakestate.tables.manager import SubtaskCheckpoint, TableManager

ROWS = numbered_rows(300)


def run_subtask(
    sink: ParquetSink, backend: ParquetBackend, task: TaskInfo, epoch: int, *, finish_files: bool
) -> SubtaskCheckpoint:
    restore_from = epoch - 1 if epoch > 1 else None
    tables = TableManager.load(task, sink.tables(), backend, restore_from)
    context = SinkContext(task, Epoch(epoch), tables, backend.ambient, None, SCHEMA)
    writer = sink.writer(context)
    writer.write(ROWS(epoch, task.subtask_index))
    writer.finish(finish_files=finish_files)
    return tables.checkpoint(epoch, 1, None, then_stop=finish_files)


def test_files_stay_open_across_epochs_and_rescaling(tmp_path: Path) -> None:
    backend = ParquetBackend(f"memory://{uuid.uuid4().hex}", cache_dir=tmp_path / "cache")
    sink = ParquetSink(
        f"file://{tmp_path / 'out'}",
        partition_by=["country"],
        roll=Roll(bytes="40KB", interval=None),
        kept_row_bytes="6KB",
    )
    parallelisms = [3, 3, 3, 2, 2, 5, 1, 1]
    expected = []
    for epoch, parallelism in enumerate(parallelisms, start=1):
        last = epoch == len(parallelisms)
        tasks = [TaskInfo(JOB, SINK, index, parallelism) for index in range(parallelism)]
        done = [run_subtask(sink, backend, task, epoch, finish_files=last) for task in tasks]
        expected += [row for index in range(parallelism) for row in ROWS(epoch, index)["row"].to_pylist()]
        backend.write_checkpoint_metadata(JOB, epoch, done, on_commit={SINK: lambda commit: None})
        pre_commits = [data for checkpoint in done for data in checkpoint.commit_data.values()]
        for _ in range(2):
            sink.committer().commit(permit_for(epoch), pre_commits)
            sink.committer().clean_up(JOB, Epoch(epoch), pre_commits)
    found = ds.dataset(tmp_path / "out", format="parquet", partitioning="hive").to_table()
    assert sorted(found["row"].to_pylist()) == sorted(expected)
    assert LocalOutput(tmp_path / "out").hidden_files() == []
