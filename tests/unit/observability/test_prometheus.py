"""What each epoch says about itself: the log, Prometheus metrics, and the line on a terminal."""

from __future__ import annotations

import io
import logging
import os
import re
import sys
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.support.repository import ROOT
from tests.support.spark.totals import Totals

from lakestate.errors import MissingExtraError
from lakestate.observability.progress import EpochProgress, StepMetrics
from lakestate.observability.progress_line import ProgressLine, progress_text
from lakestate.observability.prometheus import PrometheusMetrics
from lakestate.protocol.metadata import CompletionStatus, StateSummary
from lakestate.testing.operator_harness import OperatorHarness

OPERATIONS = ROOT / "docs" / "operations.md"
PROGRESS = EpochProgress(
    job_id="totals",
    epoch=7,
    status=CompletionStatus.COMPLETE,
    watermark_us=90_000_000,
    lag_ms=1500,
    rows={"bids": 50_000},
    late_rows={"bids": 3},
    operators={"sum": StepMetrics(50_000, 900, 2000, 12.0, files_written=2)},
    state=StateSummary(12, 1000, 3_400_000, 210_000),
    durations_ms={"run": 700.0, "total": 800.0},
    upkeep_failures={"retention": 2},
)
ROWS = [{"user": "ann", "amount": 1.0}, {"user": "bob", "amount": 2.0}]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestProgress:
    def test_an_epoch_says_how_many_files_it_has_written(self) -> None:
        harness = OperatorHarness(Totals(), parallelism=1)
        written = []
        for rows in (ROWS, [], ROWS):
            harness.epoch(rows)
            assert harness.progress is not None
            written.append((harness.progress.files_written, harness.progress.state.file_count))
        # The small run of the first epoch is written again together with the rows of the third.
        assert written == [(1, 1), (0, 1), (1, 1)]

    def test_every_epoch_is_logged_with_its_progress_as_the_argument(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        harness = OperatorHarness(Totals())
        with caplog.at_level(logging.INFO, logger="lakestate.epochs"):
            harness.epoch(ROWS)
        (record,) = [record for record in caplog.records if record.name == "lakestate.epochs"]
        assert record.args == (harness.progress,)
        assert record.getMessage().startswith("harness: epoch 1, 2 rows, ")


class TestPrometheus:
    def test_counters_add_up_and_gauges_show_the_newest_epoch(self) -> None:
        registry = CollectorRegistry()
        metrics = PrometheusMetrics(registry)
        metrics.on_epoch(PROGRESS)
        metrics.on_epoch(replace(PROGRESS, epoch=8, state=StateSummary(13, 1100, 3_500_000, 1000)))
        found = {
            (name, key): registry.get_sample_value(f"lakestate_{name}", dict(key)) for name, key in EXPECTED
        }
        assert found == EXPECTED

    def test_an_epoch_without_a_watermark_shows_none(self) -> None:
        registry = CollectorRegistry()
        PrometheusMetrics(registry).on_epoch(replace(PROGRESS, watermark_us=None, lag_ms=None))
        assert registry.get_sample_value("lakestate_watermark_lag_seconds", {"job": "totals"}) is None

    def test_jobs_share_metrics_and_differ_by_label(self) -> None:
        registry = CollectorRegistry()
        metrics = PrometheusMetrics(registry)
        metrics.on_epoch(PROGRESS)
        metrics.on_epoch(replace(PROGRESS, job_id="other", epoch=1))
        lines = generate_latest(registry).decode().splitlines()
        assert [line for line in lines if line.startswith("lakestate_epoch{")] == [
            'lakestate_epoch{job="totals"} 7.0',
            'lakestate_epoch{job="other"} 1.0',
        ]

    def test_the_page_on_operations_lists_exactly_these_metrics(self) -> None:
        registry = CollectorRegistry()
        PrometheusMetrics(registry)
        made = {
            f"{family.name}_total" if family.type == "counter" else family.name
            for family in registry.collect()
        }
        table = [line for line in OPERATIONS.read_text().splitlines() if line.startswith("| `lakestate_")]
        assert set(re.findall(r"`(lakestate_\w+)`", "\n".join(table))) == made

    def test_without_the_package_the_error_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "prometheus_client", None)
        with pytest.raises(MissingExtraError, match=r"lakestate\[metrics\]"):
            PrometheusMetrics()


_JOB = ("job", "totals")
_SUM = (_JOB, ("operator", "sum"))
EXPECTED = {
    ("epochs_total", (_JOB,)): 2,
    ("source_rows_total", (_JOB, ("source", "bids"))): 100_000,
    ("source_late_rows_total", (_JOB, ("source", "bids"))): 6,
    ("operator_rows_in_total", _SUM): 100_000,
    ("operator_rows_out_total", _SUM): 1800,
    ("operator_bytes_written_total", _SUM): 4000,
    ("operator_files_written_total", _SUM): 4,
    ("upkeep_failures_total", (_JOB, ("step", "retention"))): 4,
    ("epoch", (_JOB,)): 8,
    ("state_bytes", (_JOB,)): 3_500_000,
    ("state_files", (_JOB,)): 13,
    ("state_rows", (_JOB,)): 1100,
    ("watermark_timestamp_seconds", (_JOB,)): 90,
    ("watermark_lag_seconds", (_JOB,)): 1.5,
    ("epoch_step_seconds_sum", (_JOB, ("step", "total"))): 1.6,
    ("epoch_step_seconds_count", (_JOB, ("step", "run"))): 2,
}


class TestProgressLine:
    def test_elsewhere_than_on_a_terminal_every_epoch_has_a_line(self) -> None:
        stream = io.StringIO()
        line = ProgressLine(stream)
        line.on_epoch(PROGRESS)
        line.on_epoch(replace(PROGRESS, epoch=8))
        line.close()
        assert [text.split("  ")[1] for text in stream.getvalue().splitlines()] == ["epoch 7", "epoch 8"]

    def test_on_a_terminal_one_line_is_rewritten_and_the_last_epoch_ends_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((23, 24)))
        stream = Terminal()
        line = ProgressLine(stream)
        line.on_epoch(PROGRESS)
        line.on_epoch(replace(PROGRESS, epoch=8, status=CompletionStatus.FINAL))
        line.close()
        assert stream.getvalue() == "\r\x1b[2Ktotals  epoch 7  50,00\r\x1b[2Ktotals  epoch 8  50,00\n"

    def test_what_is_not_there_is_not_said(self) -> None:
        quiet = replace(PROGRESS, rows={}, late_rows={}, watermark_us=None, lag_ms=None)
        assert (
            progress_text(quiet) == "totals  epoch 7  0 rows in 0.80 s  state 3.4 MB in 12 files  +210.0 kB"
        )

    def test_a_watermark_that_no_datetime_can_be_is_shown_as_the_last_there_is(self) -> None:
        assert "watermark 9999-12-31 23:59:59" in progress_text(replace(PROGRESS, watermark_us=2**62))
