"""What is reported about each finished epoch, to logs and listeners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from lakestate.observability.file_events import FileEvent, OutputFiles
from lakestate.protocol.metadata import CompletionStatus, StateSummary


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """What one operator or sink did in one subtask."""

    rows_in: int = 0
    rows_out: int = 0
    bytes_written: int = 0
    checkpoint_ms: float = 0.0
    files_written: int = 0


@dataclass(frozen=True, slots=True)
class EpochProgress:
    """One finished epoch. The time of a step that runs in parallel is that of the slowest subtask."""

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
    clock_ahead_ms: int = 0
    """How far the time of the job is ahead of the driver's clock. Until it has caught up, no TTL passes."""
    upkeep_failures: Mapping[str, int] = field(default_factory=dict)
    """How often clean_up, retention and compaction failed beside the stream since the last epoch."""
    outputs: Mapping[str, OutputFiles] = field(default_factory=dict)
    """What happened to output files, by sink."""
    file_events: tuple[FileEvent, ...] = ()
    """The same, one by one: at most the first `FILE_EVENTS_KEPT`."""
    parts_ms: Mapping[str, float] = field(default_factory=dict)
    """Where the time went, by the parts that `lakestate profile` shows; empty if it was not measured."""

    @property
    def rows_total(self) -> int:
        """Rows read from all sources."""
        return sum(self.rows.values())

    @property
    def files_written(self) -> int:
        """State files that this epoch wrote."""
        return sum(step.files_written for step in self.operators.values())

    def __str__(self) -> str:
        late = sum(self.late_rows.values())
        return (
            f"{self.job_id}: epoch {self.epoch}, {self.rows_total:,} rows"
            + (f" ({late:,} late)" if late else "")
            + f", {self.durations_ms.get('total', 0):,.0f} ms, {self.state.bytes_written:,} bytes written, "
            f"state {self.state.size_bytes:,} bytes in {self.state.file_count:,} files"
            + (f", time {self.clock_ahead_ms:,} ms ahead of the clock" if self.clock_ahead_ms else "")
        )


@runtime_checkable
class EpochListener(Protocol):
    """Called on the driver for every finished epoch, after its commit."""

    def on_epoch(self, progress: EpochProgress) -> None:
        """An epoch is published and committed. An exception raised here stops the job."""
        ...
