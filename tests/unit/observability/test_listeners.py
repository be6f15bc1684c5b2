"""Who is told: objects with `on_epoch`, with `on_file_event`, or with both."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

import lakestate as ls
from lakestate.observability.file_events import FileEvent, FileEventKind
from lakestate.observability.listeners import check_listeners, tell_epoch, tell_files
from lakestate.observability.progress import EpochProgress
from lakestate.protocol.metadata import CompletionStatus, StateSummary

EVENT = FileEvent(
    FileEventKind.COMMITTED, "shop", "out", 0, "part-1.parquet", "", 2, 1, rows=3, size_bytes=10
)
PROGRESS = EpochProgress("shop", 1, CompletionStatus.COMPLETE, None, None, {}, {}, {}, StateSummary())


class Epochs:
    def __init__(self) -> None:
        self.told: list[object] = []

    def on_epoch(self, progress: EpochProgress) -> None:
        self.told.append(progress)


class Files:
    def __init__(self) -> None:
        self.told: list[object] = []

    def on_file_event(self, event: FileEvent) -> None:
        self.told.append(event)


class Both(Epochs, Files):
    pass


def test_each_listener_is_told_what_it_has_a_method_for() -> None:
    listeners = [Epochs(), Files(), Both()]
    check_listeners(listeners)
    tell_files(listeners, [EVENT, EVENT])
    tell_epoch(listeners, PROGRESS)
    assert [each.told for each in listeners] == [[PROGRESS], [EVENT, EVENT], [EVENT, EVENT, PROGRESS]]


def test_an_object_that_would_never_be_called_is_refused() -> None:
    with pytest.raises(ls.InvalidInputError, match="not a listener; found list; expected an object with"):
        check_listeners([Epochs(), []])
    with pytest.raises(ls.InvalidInputError, match=r"a listener is a class; found Epochs;.*write Epochs\("):
        check_listeners([Epochs])


def test_files_are_counted_for_prometheus() -> None:
    registry = CollectorRegistry()
    metrics = ls.PrometheusMetrics(registry)
    opened = FileEvent(FileEventKind.OPENED, "shop", "out", 0, "a", "", 1, 1)
    rolled = FileEvent(FileEventKind.ROLLED, "shop", "out", 0, "a", "", 2, 1, 3, 9, "bytes")
    finished = FileEvent(FileEventKind.FINISHED, "shop", "out", 0, "a", "", 2, 1, 3, 10)
    tell_files([metrics], [opened, opened, rolled, finished, EVENT, EVENT])
    of_sink = {"job": "shop", "sink": "out"}
    found = {
        name: registry.get_sample_value(f"lakestate_output_{name}_total", of_sink)
        for name in ("files_opened", "files_finished", "files_committed", "rows", "bytes")
    }
    assert found == {"files_opened": 2, "files_finished": 1, "files_committed": 2, "rows": 6, "bytes": 20}
    by_bytes = {**of_sink, "reason": "bytes"}
    assert registry.get_sample_value("lakestate_output_files_rolled_total", by_bytes) == 1
