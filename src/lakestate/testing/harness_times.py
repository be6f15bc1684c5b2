"""The times of a harness: a clock that tests set, and the watermark that they give to an epoch."""

from __future__ import annotations

from dataclasses import replace

from lakestate.ambient import SystemAmbient
from lakestate.coordinator.epoch_plan import EpochPlan
from lakestate.errors import InvalidInputError
from lakestate.protocol.watermarks import instant
from lakestate.tables.event_time import EventTimeLike, event_time_us


class HarnessClock(SystemAmbient):
    """The system clock until a test sets it. From then on it stands where it was set last."""

    def __init__(self) -> None:
        self._now_ms: int | None = None

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return super().now_ms() if self._now_ms is None else self._now_ms

    def set(self, time: EventTimeLike, newest_ms: int) -> None:
        """Set the clock. `newest_ms` is when the newest epoch ended: time never goes back."""
        now_ms, rest_us = divmod(event_time_us(time, "timestamp"), 1000)
        if rest_us:
            raise InvalidInputError(
                "processing time has milliseconds",
                found=f"{now_ms * 1000 + rest_us} microseconds since 1970",
                expected="a whole number of milliseconds",
            )
        if now_ms < newest_ms:
            raise InvalidInputError(
                "processing time never goes back",
                found=str(instant(now_ms * 1000)),
                expected=f"{instant(newest_ms * 1000)}, the end of the newest epoch, or later",
                action="pass processing_time in the first epoch too: the default is the time of day",
            )
        self._now_ms = now_ms


def with_watermark(plan: EpochPlan, watermark: EventTimeLike | None) -> EpochPlan:
    """The plan with the watermark that the test gives, which never goes back.

    The driver learns of it as that of the source, and plans the next epoch with it. So the epoch before saw
    what its source has reached, and not what its manifest says.
    """
    parent = plan.parent
    if parent is not None and parent.sources:
        plan = replace(plan, parent=replace(parent, watermark_us=parent.sources[0].watermark_us))
    if watermark is None:
        return plan
    given_us = event_time_us(watermark, "timestamp")
    return replace(
        plan, watermark_us=given_us if plan.watermark_us is None else max(given_us, plan.watermark_us)
    )
