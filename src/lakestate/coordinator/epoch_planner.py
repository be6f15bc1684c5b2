"""`EpochPlanner`: decides what every subtask of an epoch is given. No I/O.

Both drivers plan with it: `JobDriver`, which has claimed its job, and the Spark data source, whose tasks
begin before anybody has claimed the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from lakestate.coordinator.epoch_plan import Ending, EpochPlan, Merges
from lakestate.protocol.metadata import Manifest, SourceOffsets
from lakestate.protocol.retention import RetentionPolicy
from lakestate.protocol.values import Epoch, Generation
from lakestate.protocol.watermarks import Watched, idle_from_us, job_watermark
from lakestate.tables.stored_operator import ShippedOperator

NEVER_US = 2**63 - 1


@dataclass(frozen=True, slots=True)
class EpochPlanner:
    """Plans the epochs of one job. Each follows its parent, the newest published epoch, if there is one.

    `timed_sources` are the sources with event time: the watermark is the least of theirs. `idle_after_us`
    says of some of them after how long without rows they no longer count.
    """

    job_id: str
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    timed_sources: tuple[str, ...] = ()
    idle_after_us: Mapping[str, int] = field(default_factory=dict)

    def plan(
        self,
        parent: Manifest | None,
        generation: Generation,
        now_ms: int,
        *,
        state_id: str,
        merges: Merges | None = None,
        stored: Mapping[str, ShippedOperator] | None = None,
        ending: Ending = Ending.CONTINUE,
        expired_at_us: int | None = None,
        watched: Watched | None = None,
    ) -> EpochPlan:
        """The epoch after `parent`, to be run at `now_ms` by a driver of this generation.

        `watched` is the time in which rows of idle sources would have been seen; None if that is not known.
        """
        epoch = next_epoch(parent)
        return EpochPlan(
            job_id=self.job_id,
            epoch=epoch,
            generation=generation,
            parent=parent,
            watermark_us=None if parent is None else self._planned_watermark_us(parent, ending, watched),
            min_epoch=Epoch(max(1, epoch - self.retention.keep_epochs + 1)),
            processing_time_us=1000
            * (now_ms if expired_at_us is not None else _processing_time_ms(parent, now_ms)),
            expired_at_us=expired_at_us,
            ending=ending,
            merges=merges or {},
            stored=stored or {},
            state_id=state_id,
        )

    def next_watermark_us(self, parent: Manifest, watched: Watched | None = None) -> int | None:
        """The watermark of the epoch after `parent`."""
        active: list[int | None] = []
        idle: list[int | None] = []
        for name, source in self._timed(parent):
            is_idle = watched is not None and self._idle_from_us(name, source, watched) <= watched.until_us
            (idle if is_idle else active).append(None if source is None else source.watermark_us)
        return job_watermark(parent.watermark_us, active, idle)

    def moves_at_us(self, parent: Manifest, watched: Watched) -> int | None:
        """The processing time at which the watermark moves, because one more source is idle, or None."""
        now_us = self.next_watermark_us(parent, watched)
        times = {self._idle_from_us(name, source, watched) for name, source in self._timed(parent)}
        for time_us in sorted(time for time in times if watched.until_us < time < NEVER_US):
            if self.next_watermark_us(parent, replace(watched, until_us=time_us)) != now_us:
                return time_us
        return None

    def _timed(self, parent: Manifest) -> Iterator[tuple[str, SourceOffsets | None]]:
        reached = {source.source: source for source in parent.sources}
        for name in self.timed_sources:
            yield name, reached.get(name)

    def _idle_from_us(self, name: str, source: SourceOffsets | None, watched: Watched) -> int:
        if name not in self.idle_after_us:
            return NEVER_US
        rows_at_us = None if source is None else source.rows_at_us
        return idle_from_us(rows_at_us, self.idle_after_us[name], watched.since_us)

    def _planned_watermark_us(self, parent: Manifest, ending: Ending, watched: Watched | None) -> int | None:
        if ending is Ending.FINISH_FILES:
            # Operators are not called, so nothing may expire that they have not seen the watermark pass.
            return parent.watermark_us
        return self.next_watermark_us(parent, watched)


def next_epoch(parent: Manifest | None) -> Epoch:
    """The epoch after `parent`; the first one of a job without a published epoch."""
    return Epoch(1) if parent is None else parent.epoch.next()


def _processing_time_ms(parent: Manifest | None, now_ms: int) -> int:
    """The time of day, which never decreases from epoch to epoch, even if hosts' clocks differ.

    Otherwise rows that have expired would come back.
    """
    return now_ms if parent is None else max(now_ms, parent.finished_ms)


def time_watched(newest: Manifest | None, started_us: int, silent_us: int | None) -> Watched:
    """The time in which a driver that started then would have seen rows of sources that have none.

    If all sources were silent until `silent_us`, it is until then. Otherwise the next epoch has rows, and
    what came after the newest one began may be among them.
    """
    if newest is None:
        return Watched(started_us, started_us)
    until_ms = newest.started_ms if silent_us is None else max(silent_us // 1000, newest.finished_ms)
    return Watched(started_us, until_ms * 1000)
