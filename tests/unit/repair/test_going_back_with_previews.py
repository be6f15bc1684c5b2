"""Open files that show their rows in small ones, when their job goes back to an earlier epoch."""

from __future__ import annotations

import pytest

from lakestate.errors import CorruptionError
from lakestate.repair.open_files import OpenSince
from lakestate.sinks.files.destination import LocalResumePoint
from lakestate.sinks.files.open_files import OpenFile, OpenFileState
from lakestate.sinks.formats.writer_state import WriterState

STATE = WriterState(0, 0, 0, 0, ())


def open_file(path: str, temporary: str, rows: int, preview: OpenFile | None = None) -> OpenFile:
    return OpenFile(
        file_id="f",
        path=path,
        partition="",
        format="parquet-1",
        resume_point=LocalResumePoint(temporary, 0),
        opened_ms=0,
        written_ms=0,
        size_bytes=0,
        partition_end_us=None,
        start=0,
        row_count=rows,
        encoded_row_bytes=0,
        next_piece=0,
        pieces=(),
        shown=0 if preview is None else 1,
        shown_rows=0 if preview is None else rows - preview.row_count,
        preview=preview,
    )


LARGE = open_file("large", "hidden-large", 10, open_file("small", "hidden-small", 4))
SHOWN = OpenFileState(STATE, STATE, ("first",))


def test_a_small_file_that_is_still_open_continues_in_the_bytes_of_today() -> None:
    since = OpenSince({"large": "hidden-large", "small": "copy-of-small"})
    expected = open_file("large", "hidden-large", 10, open_file("small", "copy-of-small", 4))
    assert since.resumed(LARGE, SHOWN) == (expected, SHOWN)


def test_a_small_file_that_is_visible_by_now_shows_the_rows_of_the_epoch() -> None:
    record, state = OpenSince({"large": "hidden-large"}).resumed(LARGE, SHOWN)
    assert (record.preview, record.shown, record.shown_rows) == (None, 2, 10)
    assert state == OpenFileState(STATE, None, ("first", "small"))


def test_a_small_file_that_can_never_be_committed_is_named() -> None:
    since = OpenSince({"large": "hidden-large"}, lost=frozenset({"small"}))
    with pytest.raises(CorruptionError, match="small"):
        since.resumed(LARGE, SHOWN)
