"""`PrometheusMetrics`: what each epoch did, as Prometheus metrics. Needs `lakestate[metrics]`.

One object serves all pipelines of a process: every metric has the job as a label. It only counts;
`prometheus_client`, or the surrounding program, serves the registry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from lakestate.errors import MissingExtraError
from lakestate.observability.file_events import FileEvent, FileEventKind
from lakestate.observability.progress import EpochProgress

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

STEP_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Buckets for durations: from a commit without files to an epoch of five minutes."""


class PrometheusMetrics:
    """A listener for monitoring: `pipeline.start(listeners=[PrometheusMetrics()])`.

    The default registry is the one that `prometheus_client.start_http_server(8000)` serves.

    >>> from prometheus_client import CollectorRegistry
    >>> from lakestate.protocol.metadata import CompletionStatus, StateSummary
    >>> registry = CollectorRegistry()
    >>> PrometheusMetrics(registry).on_epoch(EpochProgress(
    ...     job_id="totals", epoch=7, status=CompletionStatus.COMPLETE, watermark_us=None, lag_ms=None,
    ...     rows={"bids": 50_000}, late_rows={}, operators={}, state=StateSummary()))
    >>> registry.get_sample_value("lakestate_source_rows_total", {"job": "totals", "source": "bids"})
    50000.0
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        client = _client()
        known = client.REGISTRY if registry is None else registry

        def counter(name: str, help_: str, *labels: str) -> Any:
            return client.Counter(f"lakestate_{name}", help_, ("job", *labels), registry=known)

        def gauge(name: str, help_: str) -> Any:
            return client.Gauge(f"lakestate_{name}", help_, ("job",), registry=known)

        self._epochs = counter("epochs", "Epochs finished by this driver.")
        self._rows = counter("source_rows", "Rows read.", "source")
        self._late_rows = counter("source_late_rows", "Rows older than the watermark.", "source")
        self._rows_in = counter("operator_rows_in", "Rows given to an operator or sink.", "operator")
        self._rows_out = counter("operator_rows_out", "Rows yielded by an operator.", "operator")
        self._bytes_written = counter("operator_bytes_written", "Bytes of state written.", "operator")
        self._files_written = counter("operator_files_written", "Files of state written.", "operator")
        self._opened = counter("output_files_opened", "Output files opened.", "sink")
        self._rolled = counter("output_files_rolled", "Output files rolled.", "sink", "reason")
        self._finished = counter("output_files_finished", "Output files finished.", "sink")
        self._committed = counter("output_files_committed", "Output files made visible.", "sink")
        self._shown = counter("output_files_shown", "Small files with rows of open ones.", "sink")
        self._rows_committed = counter("output_rows", "Rows in files made visible.", "sink")
        self._bytes_committed = counter("output_bytes", "Bytes of files made visible.", "sink")
        self._upkeep_failures = counter("upkeep_failures", "Steps of upkeep that failed.", "step")
        self._epoch = gauge("epoch", "The newest published epoch.")
        self._state_bytes = gauge("state_bytes", "Bytes of all files that the newest epoch refers to.")
        self._state_files = gauge("state_files", "Files that the newest epoch refers to.")
        self._state_rows = gauge("state_rows", "Rows in those files, overwritten ones included.")
        self._watermark = gauge("watermark_timestamp_seconds", "The watermark, in seconds since 1970.")
        self._lag = gauge("watermark_lag_seconds", "How far the watermark is behind the clock.")
        self._ahead = gauge("clock_ahead_seconds", "How far the job's time is ahead of the driver's clock.")
        self._seconds = client.Histogram(
            "lakestate_epoch_step_seconds",
            "How long a step of an epoch took; step total is the epoch.",
            ("job", "step"),
            buckets=STEP_SECONDS,
            registry=known,
        )

    def on_epoch(self, progress: EpochProgress) -> None:
        """Count an epoch."""
        self._count_rows(progress)
        self._show_state(progress)
        self._epochs.labels(progress.job_id).inc()
        for step, count in progress.upkeep_failures.items():
            self._upkeep_failures.labels(progress.job_id, step).inc(count)
        for step, duration_ms in progress.durations_ms.items():
            self._seconds.labels(progress.job_id, step).observe(duration_ms / 1000)

    def on_file_event(self, event: FileEvent) -> None:
        """Count an output file."""
        labels = (event.job_id, event.sink_id)
        match event.kind:
            case FileEventKind.OPENED:
                self._opened.labels(*labels).inc()
            case FileEventKind.ROLLED:
                self._rolled.labels(*labels, event.reason).inc()
            case FileEventKind.FINISHED:
                self._finished.labels(*labels).inc()
            case FileEventKind.COMMITTED:
                self._committed.labels(*labels).inc()
                self._rows_committed.labels(*labels).inc(event.rows)
                self._bytes_committed.labels(*labels).inc(event.size_bytes)
            case FileEventKind.SHOWN:
                self._shown.labels(*labels).inc()
            case _:
                assert_never(event.kind)

    def _count_rows(self, progress: EpochProgress) -> None:
        job = progress.job_id
        for source, count in progress.rows.items():
            self._rows.labels(job, source).inc(count)
        for source, count in progress.late_rows.items():
            self._late_rows.labels(job, source).inc(count)
        for operator, done in progress.operators.items():
            self._rows_in.labels(job, operator).inc(done.rows_in)
            self._rows_out.labels(job, operator).inc(done.rows_out)
            self._bytes_written.labels(job, operator).inc(done.bytes_written)
            self._files_written.labels(job, operator).inc(done.files_written)

    def _show_state(self, progress: EpochProgress) -> None:
        job, state = progress.job_id, progress.state
        self._epoch.labels(job).set(progress.epoch)
        self._state_bytes.labels(job).set(state.size_bytes)
        self._state_files.labels(job).set(state.file_count)
        self._state_rows.labels(job).set(state.row_count)
        self._ahead.labels(job).set(progress.clock_ahead_ms / 1000)
        if progress.watermark_us is not None and progress.lag_ms is not None:
            self._watermark.labels(job).set(progress.watermark_us / 1e6)
            self._lag.labels(job).set(progress.lag_ms / 1000)


def _client() -> Any:
    try:
        import prometheus_client
    except ModuleNotFoundError as missing:
        raise MissingExtraError(
            "Prometheus metrics need prometheus_client",
            action='install it with: pip install "lakestate[metrics]"',
        ) from missing
    return prometheus_client
