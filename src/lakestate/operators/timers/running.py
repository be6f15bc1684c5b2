"""`RunningTimers`: the timers of an operator in one epoch. Decides which of them are due."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from lakestate.errors import OperatorError
from lakestate.operators.context import OperatorContext
from lakestate.operators.timers.table import Timers, TimerTime
from lakestate.operators.timers.view import TimersView

ROUNDS_MAX = 10_000
"""As often, at most, may timers that have fired set timers that are due at once."""


class RunningTimers:
    """The timers of one subtask of an operator."""

    def __init__(self, declared: Mapping[str, Timers], context: OperatorContext) -> None:
        self._context = context
        self._views: list[tuple[Timers, TimersView]] = []
        self._have_all_fired = False
        for name, timers in declared.items():
            view: TimersView = context.view(name)
            is_event = timers.time is TimerTime.EVENT
            view.begin(
                context.watermark_us if is_event else context.processing_time_us, goes_back=not is_event
            )
            self._views.append((timers, view))

    def due(self, where: str) -> Iterator[pa.Table]:
        """The timers to fire, until no fired timer has set another that is due.

        When the stream has ended, the watermark passes every timer in event time, once: what those set
        stays for a job that is reopened, unless it is due already.
        """
        for _ in range(ROUNDS_MAX):
            found = False
            takes_all = self._context.is_last and not self._have_all_fired
            self._have_all_fired = True
            for timers, view in self._views:
                rows = view.take_due(all_of_them=takes_all and timers.time is TimerTime.EVENT)
                if rows.num_rows:
                    found = True
                    yield rows
            if not found:
                return
        raise OperatorError(
            "timers keep setting timers whose time has passed",
            object_name=where,
            found=f"{ROUNDS_MAX:,} rounds in one epoch",
            action="set timers at later times in on_timer",
        )

    def wake(self) -> None:
        """Ask for an epoch at the next timer in processing time."""
        for timers, view in self._views:
            if timers.time is TimerTime.PROCESSING and (time_us := view.min_time()) is not None:
                self._context.wake_at(time_us)
