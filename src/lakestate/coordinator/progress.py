"""What is told about each finished epoch, to logs and listeners."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from lakestate.coordinator.epoch_plan import EpochResult, StepMetrics, SubtaskReport
from lakestate.protocol.metadata import CompletionStatus, Manifest, StateSummary


@dataclass(frozen=True)
class EpochProgress:
    """One finished epoch. Times of steps that run in parallel are those of the slowest subtask."""

    job_id: str
    epoch: int
    status: CompletionStatus
    watermark_us: int | None
    lag_ms: int | None
    """How far the watermark is behind the clock; None without a watermark."""
    rows: Mapping[str, int]
    """Rows read, by source."""
    late_rows: Mapping[str, int]
    operators: Mapping[str, StepMetrics]
    state: StateSummary
    durations_ms: Mapping[str, float] = field(default_factory=dict)
    upkeep_failures: Mapping[str, int] = field(default_factory=dict)
    """How often clean_up, retention and compaction failed beside the stream since the last epoch."""

    @property
    def rows_total(self) -> int:
        """Rows read from all sources."""
        return sum(self.rows.values())

    @property
    def files_written(self) -> int:
        """State files that this epoch has written."""
        return sum(step.files_written for step in self.operators.values())

    def __str__(self) -> str:
        late = sum(self.late_rows.values())
        return (
            f"{self.job_id}: epoch {self.epoch}, {self.rows_total:,} rows"
            + (f" ({late:,} late)" if late else "")
            + f", {self.durations_ms.get('total', 0):,.0f} ms, {self.state.bytes_written:,} bytes written, "
            f"state {self.state.size_bytes:,} bytes in {self.state.file_count:,} files"
        )


class EpochListener(Protocol):
    """Is told about every finished epoch, on the driver, after its commit."""

    def on_epoch(self, progress: EpochProgress) -> None:
        """An epoch is published and committed. What this raises stops the job."""
        ...


def epoch_progress(
    manifest: Manifest,
    result: EpochResult,
    durations_ms: Mapping[str, float],
    now_ms: int,
    upkeep_failures: Mapping[str, int],
) -> EpochProgress:
    """The progress of an epoch from its manifest and what its subtasks reported."""
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
        operators=_summed(result.reports),
        state=manifest.summary,
        durations_ms={**slowest, **durations_ms},
        upkeep_failures=dict(upkeep_failures),
    )


def _summed(reports: Iterable[SubtaskReport]) -> dict[str, StepMetrics]:
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
