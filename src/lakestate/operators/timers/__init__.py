"""Timers: rows that come back to their operator at a time, in event time or in processing time."""

from lakestate.operators.timers.table import Timers, TimerTime, timers_of
from lakestate.operators.timers.view import TimersView

__all__ = ["TimerTime", "Timers", "TimersView", "timers_of"]
