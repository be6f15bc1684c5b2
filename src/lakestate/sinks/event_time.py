"""Partitions by event time: a path pattern, and where the period ends that a path stands for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError
from lakestate.storage.object_path import checked_path

_UNITS = {"%Y": "year", "%m": "month", "%d": "day", "%H": "hour", "%M": "minute"}
_FINEST_FIRST = ("minute", "hour", "day", "month", "year")
_LENGTHS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}
_DIRECTIVE = re.compile(r"%.")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class EventTime:
    """A part of the path made from the event time, in UTC.

    The pattern may use %Y, %m, %d, %H and %M, and slashes.

    >>> hourly = EventTime("day=%Y-%m-%d/hour=%H")
    >>> hourly.path_of(0), hourly.end_us(0)
    ('day=1970-01-01/hour=00', 3600000000)
    """

    pattern: str = "day=%Y-%m-%d"

    def __post_init__(self) -> None:
        found = _DIRECTIVE.findall(self.pattern)
        if not found or any(directive not in _UNITS for directive in found):
            raise InvalidInputError(
                "not a pattern of event time",
                found=repr(self.pattern),
                expected=f"a path with some of {', '.join(_UNITS)}",
            )
        checked_path(self.path_of(0))

    @property
    def unit(self) -> str:
        """The finest unit that the path tells apart."""
        units = {_UNITS[directive] for directive in _DIRECTIVE.findall(self.pattern)}
        return next(unit for unit in _FINEST_FIRST if unit in units)

    def floored(self, times: pa.Array) -> pa.Array:
        """Each time at the beginning of its period."""
        utc = times.cast(pa.timestamp("us"), safe=False)
        return pc.floor_temporal(utc, unit=self.unit)

    def path_of(self, time_us: int) -> str:
        """The path of the period that a time lies in."""
        # Not strftime: it writes years before 1000 without their zeros.
        moment = _moment(time_us)
        shown = {
            "%Y": f"{moment.year:04d}",
            "%m": f"{moment.month:02d}",
            "%d": f"{moment.day:02d}",
            "%H": f"{moment.hour:02d}",
            "%M": f"{moment.minute:02d}",
        }
        return _DIRECTIVE.sub(lambda match: shown[match[0]], self.pattern)

    def end_us(self, time_us: int) -> int:
        """Where the period ends that a time lies in."""
        start = _moment(
            int(self.floored(pa.array([time_us], pa.timestamp("us"))).cast(pa.int64())[0].as_py())
        )
        if self.unit == "year":
            end = start.replace(year=start.year + 1)
        elif self.unit == "month":
            end = (start + timedelta(days=32)).replace(day=1)
        else:
            end = start + _LENGTHS[self.unit]
        return (end - _EPOCH) // timedelta(microseconds=1)


def _moment(time_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=time_us)
