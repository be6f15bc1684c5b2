"""Where the time of a run on Spark goes: what the driver does, what Spark does, what subtasks do.

Subtasks run at the same time and take turns on cores. Of the time in which any of them ran, each part
gets the share that it has of the work of all.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from lakestate.coordinator.epoch_plan import SubtaskReport
from lakestate.observability.time_parts import SCAN, TASKS


class RunTimes:
    """Measures one run of an epoch, from one lap to the next."""

    def __init__(self) -> None:
        self._last_s = time.time()
        self.parts_ms: dict[str, float] = {}

    def lap(self, part: str) -> None:
        """What was done since the last lap belongs to a part."""
        self._add(part, self._since_last()[1])

    def lap_job(self, reports: Iterable[SubtaskReport]) -> None:
        """Since the last lap a Spark job ran, whose tasks reported this."""
        reports = list(reports)
        began_s, whole_ms = self._since_last()
        if not reports:
            self._add(TASKS, whole_ms)
            return
        # Another host's clock may differ: no part is longer than the job.
        before_ms = _within((min(each.started_s for each in reports) - began_s) * 1000, whole_ms)
        until_ms = _within((max(each.ended_s for each in reports) - began_s) * 1000, whole_ms)
        during_ms = max(until_ms - before_ms, 0.0)
        self._add(SCAN, before_ms)
        self._add(TASKS, whole_ms - before_ms - during_ms)
        work = [(part, ms) for each in reports for part, ms in each.parts_ms.items()]
        total_ms = sum(ms for _, ms in work)
        for part, ms in work:
            self._add(part, during_ms * ms / total_ms if total_ms else 0.0)

    def _since_last(self) -> tuple[float, float]:
        began_s, self._last_s = self._last_s, time.time()
        return began_s, max(self._last_s - began_s, 0.0) * 1000

    def _add(self, part: str, ms: float) -> None:
        self.parts_ms[part] = self.parts_ms.get(part, 0.0) + ms


def _within(ms: float, most_ms: float) -> float:
    return min(max(ms, 0.0), most_ms)
