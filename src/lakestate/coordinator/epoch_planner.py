"""`EpochPlanner`: decides what every subtask of an epoch is given. No I/O.

Both drivers plan with it: `JobDriver`, which has claimed its job, and the Spark data source, whose tasks
begin before anybody has claimed the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakestate.coordinator.epoch_plan import Ending, EpochPlan, Merges
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.retention import RetentionPolicy
from lakestate.protocol.values import Epoch, Generation
from lakestate.protocol.watermarks import job_watermark
from lakestate.tables.stored_operator import ShippedOperator


@dataclass(frozen=True, slots=True)
class EpochPlanner:
    """Plans the epochs of one job. Each follows its parent, the newest published epoch, if there is one.

    `timed_sources` are the sources with event time: the watermark is the least of theirs.
    """

    job_id: str
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    timed_sources: tuple[str, ...] = ()

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
    ) -> EpochPlan:
        """The epoch after `parent`, to be run at `now_ms` by a driver of this generation."""
        epoch = next_epoch(parent)
        return EpochPlan(
            job_id=self.job_id,
            epoch=epoch,
            generation=generation,
            parent=parent,
            watermark_us=None if parent is None else self.next_watermark_us(parent, ending),
            min_epoch=Epoch(max(1, epoch - self.retention.keep_epochs + 1)),
            processing_time_us=1000
            * (now_ms if expired_at_us is not None else _processing_time_ms(parent, now_ms)),
            expired_at_us=expired_at_us,
            ending=ending,
            merges=merges or {},
            stored=stored or {},
            state_id=state_id,
        )

    def next_watermark_us(self, parent: Manifest, ending: Ending = Ending.CONTINUE) -> int | None:
        """The watermark of the epoch after `parent`."""
        if ending is Ending.FINISH_FILES:
            # Operators are not called, so nothing may expire that they have not seen the watermark pass.
            return parent.watermark_us
        reached = {source.source: source.watermark_us for source in parent.sources}
        return job_watermark(parent.watermark_us, [reached.get(name) for name in self.timed_sources])


def next_epoch(parent: Manifest | None) -> Epoch:
    """The epoch after `parent`; the first one of a job without a published epoch."""
    return Epoch(1) if parent is None else parent.epoch.next()


def _processing_time_ms(parent: Manifest | None, now_ms: int) -> int:
    """The time of day, which never decreases from epoch to epoch, even if hosts' clocks differ.

    Otherwise rows that have expired would come back.
    """
    return now_ms if parent is None else max(now_ms, parent.finished_ms)
