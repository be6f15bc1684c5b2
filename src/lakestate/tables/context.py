"""What a table gets to know about the subtask and the epoch that it runs in."""

from __future__ import annotations

from dataclasses import dataclass

from lakestate.ambient import Ambient
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import TableConfig
from lakestate.protocol.values import TaskInfo
from lakestate.storage.cache.run_cache import RunCache


@dataclass(frozen=True)
class TableContext:
    """The subtask, its store and cache, and the time.

    A view gets the watermark at which the last epoch ended: rows that the watermark passes in an epoch
    expire after its hooks have run, however far it jumps. A checkpointer gets the watermark of its
    epoch, and carries no row that expires by it. Processing time is that at which the epoch began.
    All rows of an epoch see the same times, and so does the epoch when it runs again after a crash.
    """

    task: TaskInfo
    objects: JobObjects
    cache: RunCache | None
    ambient: Ambient
    watermark_us: int | None
    now_us: int


def expired_before_us(config: TableConfig, context: TableContext) -> int | None:
    """The time before which rows of a table with a time to live have expired, or None."""
    if config.ttl_us is None:
        return None
    now_us = context.now_us if config.time_column is None else context.watermark_us
    return None if now_us is None else now_us - config.ttl_us
