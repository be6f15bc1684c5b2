"""A writer of a finished file takes nothing more: what it took would be lost, or would spoil the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.sinks.local_files import begin_file

from lakestate.errors import InvalidInputError
from lakestate.sinks.formats.format import BatchBufferingWriter
from lakestate.sinks.formats.json_lines.format import JsonLinesFormat
from lakestate.sinks.formats.parquet.format import ParquetFormat

ROWS = pa.record_batch({"n": [1, 2, 3]})
WRITERS = [
    pytest.param(lambda: ParquetFormat().open_writer(ROWS.schema, None), id="parquet"),
    pytest.param(lambda: JsonLinesFormat().open_writer(ROWS.schema, None), id="json"),
    pytest.param(lambda: JsonLinesFormat(compression="gzip").open_writer(ROWS.schema, None), id="json.gz"),
]
CALLS: dict[str, Callable[[BatchBufferingWriter], object]] = {
    "add_batch_data": lambda writer: writer.add_batch_data(ROWS),
    "add_batch_data without rows": lambda writer: writer.add_batch_data(ROWS.slice(0, 0)),
    "checkpoint": lambda writer: writer.checkpoint(),
    "trailing_bytes_for_checkpoint": lambda writer: writer.trailing_bytes_for_checkpoint(),
    "finish": lambda writer: writer.finish(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("make", WRITERS)
def test_a_finished_file_takes_nothing_more(make: Callable[[], BatchBufferingWriter], call: str) -> None:
    writer = make()
    writer.add_batch_data(ROWS)
    writer.finish()
    end = writer.buffered_bytes
    with pytest.raises(InvalidInputError, match=rf"{call.split()[0]} of a file that is finished"):
        CALLS[call](writer)
    assert writer.buffered_bytes == end


def test_a_closed_local_file_takes_no_rows(tmp_path: Path) -> None:
    writer = begin_file(tmp_path, "hidden", "final.parquet", ROWS.schema)
    writer.write_batch(ROWS)
    writer.close()
    with pytest.raises(InvalidInputError, match="add_batch_data of a file that is finished"):
        writer.write_batch(ROWS)


@pytest.mark.parametrize("taken", ["nothing", "everything"])
@pytest.mark.parametrize("make", WRITERS)
def test_taken_and_trailing_bytes_are_the_file_that_would_end_now(
    make: Callable[[], BatchBufferingWriter], taken: str
) -> None:
    open_file, ended = make(), make()
    sent = b""
    for _ in range(2):
        for writer in (open_file, ended):
            writer.add_batch_data(ROWS)
            writer.settle()
        if taken == "everything":
            sent += open_file.split_to(open_file.buffered_bytes)
    trailing, statistics = open_file.trailing_bytes_for_checkpoint()
    assert statistics == ended.finish()
    assert sent + trailing == ended.split_to(ended.buffered_bytes)
    # It has changed nothing: the file goes on, and ends as if nobody had asked.
    open_file.add_batch_data(ROWS)
    assert open_file.finish().row_count == 9
