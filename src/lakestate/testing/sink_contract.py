# ruff: noqa: D102 - the names of the tests are their sentences
"""One pytest suite that every sink must pass.

Subclass `SinkContract` in a test file, give it a `sink` fixture with an empty output for every test, and say
how an outside reader reads that output::

    class TestMySink(SinkContract):
        @pytest.fixture
        def sink(self, tmp_path):
            return MySink(tmp_path)

        def read(self, sink):
            return [...]  # rows as dicts with the columns `id` and `name`, in any order
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from lakestate.errors import InvalidInputError
from lakestate.row_kind import RowKind, StreamKind
from lakestate.sinks.sink import Sink
from lakestate.testing.sink_harness import CrashPoint, SinkHarness

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def rows(*ids: int) -> list[dict[str, Any]]:
    """A row for each id."""
    return [{"id": each, "name": f"name {each}"} for each in ids]


class SinkContract:
    """What every `Sink` does with final rows."""

    @pytest.fixture
    def sink(self) -> Sink:
        """The sink under test."""
        raise NotImplementedError("give the subclass a `sink` fixture")

    def read(self, sink: Sink) -> Sequence[dict[str, Any]]:
        """All rows that a reader sees who knows nothing of the job."""
        raise NotImplementedError("give the subclass a `read` method")

    def _expect(self, harness: SinkHarness, *ids: int) -> None:
        """Finish what is open, and compare what readers see."""
        harness.finish()
        found = sorted(self.read(harness.sink), key=lambda row: row["id"])
        assert found == rows(*ids)

    def test_every_row_is_there_once(self, sink: Sink) -> None:
        harness = SinkHarness(sink, SCHEMA)
        harness.epoch(rows(1, 2))
        harness.epoch(rows(3))
        self._expect(harness, 1, 2, 3)

    def test_rows_of_all_subtasks_are_there(self, sink: Sink) -> None:
        harness = SinkHarness(sink, SCHEMA, parallelism=3)
        harness.epoch(rows(1), [], rows(2, 3))
        harness.epoch([], rows(4))
        self._expect(harness, 1, 2, 3, 4)

    def test_an_epoch_without_rows_changes_nothing(self, sink: Sink) -> None:
        harness = SinkHarness(sink, SCHEMA, parallelism=2)
        harness.epoch()
        harness.epoch(rows(1))
        harness.epoch()
        self._expect(harness, 1)

    def test_nothing_is_visible_of_an_epoch_that_is_not_published(self, sink: Sink) -> None:
        harness = SinkHarness(sink, SCHEMA)
        harness.epoch(rows(1))
        harness.finish()
        harness.crash(CrashPoint.BEFORE_PUBLISHING, rows(2))
        assert list(self.read(harness.sink)) == rows(1)
        harness.restart()
        harness.epoch(rows(3))
        self._expect(harness, 1, 3)

    def test_the_next_driver_commits_what_one_has_published(self, sink: Sink) -> None:
        harness = SinkHarness(sink, SCHEMA)
        harness.epoch(rows(1))
        harness.crash(CrashPoint.BEFORE_COMMIT, rows(2))
        harness.restart()
        self._expect(harness, 1, 2)

    def test_an_epoch_whose_commit_was_not_recorded_is_there_once(self, sink: Sink) -> None:
        harness = SinkHarness(sink, SCHEMA)
        harness.crash(CrashPoint.AFTER_COMMIT, rows(1))
        harness.restart()
        harness.crash(CrashPoint.AFTER_COMMIT, rows(2))
        harness.restart()
        self._expect(harness, 1, 2)

    def test_a_zombie_that_commits_an_epoch_again_changes_nothing(self, sink: Sink) -> None:
        harness = SinkHarness(sink, SCHEMA)
        harness.epoch(rows(1))
        harness.commit_again()
        harness.epoch(rows(2))
        harness.finish()
        harness.epoch(rows(3))
        harness.commit_again()
        harness.commit_again(1)
        self._expect(harness, 1, 2, 3)

    def test_a_job_continues_at_another_parallelism(self, sink: Sink) -> None:
        harness = SinkHarness(sink, SCHEMA, parallelism=2)
        harness.epoch(rows(1), rows(2))
        harness.restart(parallelism=3)
        harness.epoch(rows(3), rows(4), rows(5))
        harness.restart(parallelism=1)
        harness.epoch(rows(6))
        self._expect(harness, 1, 2, 3, 4, 5, 6)

    def test_a_sink_that_was_sent_to_a_worker_writes_the_same(self, sink: Sink) -> None:
        harness = SinkHarness(sink, SCHEMA)
        harness.send_to_workers = lambda given: pickle.loads(pickle.dumps(given))  # noqa: S301 - our own
        harness.epoch(rows(1))
        harness.epoch(rows(2))
        self._expect(harness, 1, 2)

    def test_rows_that_change_are_refused_unless_they_are_taken(self, sink: Sink) -> None:
        for kind in (RowKind.UPSERT, RowKind.CHANGES):
            if kind not in sink.takes:
                with pytest.raises(InvalidInputError, match="cannot take rows that change"):
                    sink.for_stream(StreamKind(kind, ("id",)), "sink out")

    def test_checking_again_changes_nothing(self, sink: Sink) -> None:
        sink.check(SCHEMA)
        sink.dry_run(SCHEMA)
        sink.check(SCHEMA)
        assert list(self.read(sink)) == []

    def test_what_is_shown_is_one_line(self, sink: Sink) -> None:
        assert repr(sink).startswith(type(sink).__name__)
        assert "\n" not in repr(sink)
