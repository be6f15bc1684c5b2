"""The writer of local files: it is the one that a sink's rows go through, and it can be given up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.sinks.sink_files import NEVER, visible_rows
from tests.support.sinks.sink_job import SinkJob, expected_rows, numbered_rows

from lakestate.errors import InvalidInputError
from lakestate.sinks import FileSink, JsonLinesSink, ParquetSink
from lakestate.sinks.files.local.output import LocalOutput
from lakestate.sinks.files.local.writer import LocalWriter
from lakestate.sinks.formats.parquet.local_writer import ParquetLocalWriter

ROWS = numbered_rows(200)


def parquet(root: Path) -> FileSink:
    return ParquetSink(f"file://{root}", roll=NEVER, kept_row_bytes=0)


def hidden_sizes(root: Path) -> dict[str, int]:
    output = LocalOutput(root)
    return {name: output.size_bytes(name) or 0 for name in output.hidden_files()}


@pytest.mark.parametrize(
    ("sink", "writer"),
    [
        (parquet, ParquetLocalWriter),
        (lambda root: FileSink(f"file://{root}", format="parquet"), ParquetLocalWriter),
        (lambda root: JsonLinesSink(f"file://{root}"), LocalWriter),
    ],
)
def test_every_row_of_a_local_sink_goes_through_the_local_writer_of_its_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: Any, writer: type[LocalWriter]
) -> None:
    seen: list[tuple[type, int]] = []
    write_batch = LocalWriter.write_batch

    def spy(self: LocalWriter, batch: pa.RecordBatch) -> int:
        seen.extend((type(self), row) for row in batch["row"].to_pylist())
        return write_batch(self, batch)

    monkeypatch.setattr(LocalWriter, "write_batch", spy)
    SinkJob(lambda: sink(tmp_path), ROWS).run_to(2)
    assert sorted(seen, key=lambda each: each[1]) == [(writer, row) for row in expected_rows(ROWS, 2, 2)]


def test_an_attempt_that_fails_leaves_what_it_found_and_nothing_else(tmp_path: Path) -> None:
    job = SinkJob(lambda: parquet(tmp_path), ROWS, parallelism=1)
    job.run_epoch()
    before = hidden_sizes(tmp_path)
    failed = job.attempt(0)
    failed.writer.write(failed.batch)
    with pytest.raises(InvalidInputError):
        failed.writer.write(failed.batch.drop_columns(["text"]))
    failed.writer.abandon()
    assert hidden_sizes(tmp_path) == before
    job.run_epoch()
    assert hidden_sizes(tmp_path).keys() == before.keys(), "no copy was needed"
    job.run_to(3)
    assert visible_rows(tmp_path) == expected_rows(ROWS, 3, 1)


def test_an_attempt_that_fails_in_the_first_epoch_leaves_no_file(tmp_path: Path) -> None:
    attempt = SinkJob(lambda: parquet(tmp_path), ROWS, parallelism=1).attempt(0)
    attempt.writer.write(attempt.batch)
    attempt.writer.abandon()
    assert hidden_sizes(tmp_path) == {}


def test_an_attempt_that_has_ended_its_epoch_keeps_what_it_wrote(tmp_path: Path) -> None:
    """Its report may be on its way, whatever happens to it now."""
    job = SinkJob(lambda: parquet(tmp_path), ROWS, parallelism=1)
    job.run_epoch()
    attempt = job.attempt(0)
    view = attempt.finish()
    attempt.writer.abandon()
    job.publish([view])
    job.run_to(3)
    assert visible_rows(tmp_path) == expected_rows(ROWS, 3, 1)
