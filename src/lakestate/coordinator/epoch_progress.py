"""What comes of an epoch: its outcome, and its progress, from its manifest and what its subtasks reported."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakestate.coordinator.epoch_plan import EpochResult, SubtaskReport
from lakestate.coordinator.job_clock import NOTICED_MS
from lakestate.observability.file_events import FILE_EVENTS_KEPT, FileEvent, sum_by_sink
from lakestate.observability.progress import EpochProgress, StepMetrics
from lakestate.observability.time_parts import BUILD, COMMIT, PUBLISH
from lakestate.protocol.metadata import Manifest, PartDuration


@dataclass(frozen=True, slots=True)
class EpochFinished:
    """The epoch is published and committed."""

    progress: EpochProgress


@dataclass(frozen=True, slots=True)
class AlreadyPublished:
    """The epoch was published earlier. Nothing was run; its commit is complete."""


@dataclass(frozen=True, slots=True)
class StartAgain:
    """Another driver has published this epoch: start again from its manifest, offsets included."""

    manifest: Manifest


EpochOutcome = EpochFinished | AlreadyPublished | StartAgain


class StopWatch:
    """How long each step of an epoch took."""

    def __init__(self) -> None:
        self._started = self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """A step ends here."""
        now = time.perf_counter()
        self._laps[name] = (now - self._last) * 1000
        self._last = now

    def laps(self) -> dict[str, float]:
        """The milliseconds of each step, and of all."""
        return {**self._laps, "total": (time.perf_counter() - self._started) * 1000}


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
        clock_ahead_ms=_noticeable_ms(manifest.finished_ms - now_ms),
        upkeep_failures=dict(upkeep_failures),
        outputs=sum_by_sink(file_events),
        file_events=tuple(file_events[:FILE_EVENTS_KEPT]),
        parts_ms=_parts(result.parts_ms, durations_ms),
    )


def stored_parts(parts_ms: Mapping[str, float]) -> tuple[PartDuration, ...]:
    """Where the time of an epoch went, as the manifest of the next one keeps it."""
    return tuple(PartDuration(name, round(ms * 1000)) for name, ms in parts_ms.items())


def _parts(run_ms: Mapping[str, float], durations_ms: Mapping[str, float]) -> dict[str, float]:
    """The parts of the run, if they were measured, and of what the driver did after it."""
    if not run_ms:
        return {}
    own_ms = max(durations_ms["run"] - sum(run_ms.values()), 0.0)
    after = {part: durations_ms[part] for part in (PUBLISH, COMMIT)}
    return {**run_ms, BUILD: run_ms.get(BUILD, 0.0) + own_ms, **after}


def _noticeable_ms(ahead_ms: int) -> int:
    """How far ahead, if it is more than hosts' clocks differ anyway."""
    return ahead_ms if ahead_ms > NOTICED_MS else 0


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
