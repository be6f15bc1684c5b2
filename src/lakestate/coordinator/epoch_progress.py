"""The progress of a finished epoch, from its manifest and what its subtasks reported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lakestate.coordinator.epoch_plan import EpochResult, SubtaskReport
from lakestate.observability.file_events import FILE_EVENTS_KEPT, FileEvent, sum_by_sink
from lakestate.observability.progress import EpochProgress, StepMetrics
from lakestate.protocol.metadata import Manifest


def summarise_epoch(
    manifest: Manifest,
    result: EpochResult,
    durations_ms: Mapping[str, float],
    now_ms: int,
    upkeep_failures: Mapping[str, int],
    file_events: Sequence[FileEvent] = (),
) -> EpochProgress:
    """Summarise an epoch from its manifest and what its subtasks reported."""
    watermark_us = manifest.watermark_us
    slowest = {
        "restore": max((report.restore_ms for report in result.reports), default=0.0),
        "process": max((report.process_ms for report in result.reports), default=0.0),
        "checkpoint": max((report.checkpoint_ms for report in result.reports), default=0.0),
    }
    return EpochProgress(
        job_id=manifest.job_id,
        epoch=int(manifest.epoch),
        status=manifest.status,
        watermark_us=watermark_us,
        lag_ms=None if watermark_us is None else now_ms - watermark_us // 1000,
        rows=dict(result.rows),
        late_rows=dict(result.late_rows),
        operators=_sum_metrics(result.reports),
        state=manifest.summary,
        durations_ms={**slowest, **durations_ms},
        upkeep_failures=dict(upkeep_failures),
        outputs=sum_by_sink(file_events),
        file_events=tuple(file_events[:FILE_EVENTS_KEPT]),
    )


def _sum_metrics(reports: Iterable[SubtaskReport]) -> dict[str, StepMetrics]:
    sums: dict[str, StepMetrics] = {}
    for report in reports:
        for name, part in report.metrics.items():
            so_far = sums.get(name, StepMetrics())
            sums[name] = StepMetrics(
                so_far.rows_in + part.rows_in,
                so_far.rows_out + part.rows_out,
                so_far.bytes_written + part.bytes_written,
                max(so_far.checkpoint_ms, part.checkpoint_ms),
                so_far.files_written + part.files_written,
            )
    return sums
