"""Options that do not fit the rows, and files that are finished while a query runs on."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from tests.support.sinks.sink_query import Rows, SinkQuery

import lakestate as ls
from lakestate.coordinator import job_driver, publish

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
DEADLINE_S = 30


def rows(*numbers: int) -> Rows:
    return [pa.record_batch({"n": numbers, "text": ["x"] * len(numbers)}, schema=SCHEMA)]


def query(folder: Path, **options: str) -> SinkQuery:
    return SinkQuery(folder, SCHEMA, {"rollInterval": "none", **options})


NO_EVENT_TIME = [
    ("nope", "rows do not have the event-time column: nope; found n, text"),
    ("text", "the event-time column is not a timestamp: text; found string"),
    ("n", "the event-time column is not a timestamp: n; found int64"),
]


@pytest.mark.parametrize(("column", "message"), NO_EVENT_TIME)
def test_an_event_time_that_rows_do_not_have_is_refused_before_any_task(
    tmp_path: Path, column: str, message: str
) -> None:
    wrong = query(tmp_path, eventTime=column, watermarkDelay="1 minute")
    with pytest.raises(ls.InvalidInputError, match=message):
        wrong.planned()
    frame: Any = SimpleNamespace(schema=wrong.schema)
    with pytest.raises(ls.InvalidInputError, match=message):
        ls.write_stream(frame, **wrong.options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rollInterwal": "1 minute"}, "unknown option: rollinterwal"),
        ({"rowGroupSize": "huge"}, "not a size"),
        ({"partitionBy": "town"}, "files are partitioned by a column that rows do not have: town"),
        ({"shuffleByPartition": "true"}, "a data source cannot ask Spark to shuffle rows"),
    ],
)
def test_a_bad_option_is_refused_by_its_name_before_any_task(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ls.InvalidInputError, match=message):
        query(tmp_path, **options).planned()


def test_finishing_files_with_wrong_options_does_not_stop_the_query(tmp_path: Path) -> None:
    written = query(tmp_path)
    written.run(0, [rows(1)])
    fence = next((tmp_path / "checkpoint").rglob("generation.json"))
    before = fence.read_bytes()
    with pytest.raises(ls.InvalidInputError, match="rows do not have the event-time column"):
        ls.finish_files(**{**written.options, "eventTime": "nope"})
    assert fence.read_bytes() == before


def test_finishing_files_says_so_if_a_batch_was_published_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = query(tmp_path)
    written.run(0, [rows(1, 2)])
    message = written.written(written.planned(), 1, 0, rows(3))
    fence_was_read, epoch_was_run = threading.Event(), threading.Event()
    check_fence, publish_epoch = publish.check_fence, job_driver.publish_epoch

    def commit_slowly() -> None:
        # It is fenced, but after its epoch was published.
        with pytest.raises(ls.FencedError):
            written.commit([message], 1)

    slow = threading.Thread(target=commit_slowly)

    def check_and_sleep(*args: Any) -> Any:
        found = check_fence(*args)
        if threading.current_thread() is slow:
            fence_was_read.set()
            assert epoch_was_run.wait(DEADLINE_S)
        return found

    def publish_after(*args: Any) -> Any:
        if threading.current_thread() is not slow:
            epoch_was_run.set()
            slow.join(DEADLINE_S)
        return publish_epoch(*args)

    monkeypatch.setattr(publish, "check_fence", check_and_sleep)
    monkeypatch.setattr(job_driver, "publish_epoch", publish_after)
    slow.start()
    assert fence_was_read.wait(DEADLINE_S)
    with pytest.raises(ls.ConflictError, match="they are still open"):
        ls.finish_files(**written.options)
    assert written.visible_files() == []
    ls.finish_files(**written.options)
    assert sorted(written.visible()["n"].to_pylist()) == [1, 2, 3]
