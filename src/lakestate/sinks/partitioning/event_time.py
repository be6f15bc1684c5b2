"""Partitions by event time: a path pattern, and the end of the period that a path covers."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.sinks.partitioning.paths import DEFAULT_PARTITION
from lakestate.storage.object_path import require_path

_UNITS = {"%Y": "year", "%m": "month", "%d": "day", "%H": "hour", "%M": "minute"}
_FINEST_FIRST = ("minute", "hour", "day", "month", "year")
_CODES = {"minute": "m", "hour": "h", "day": "D", "month": "M", "year": "Y"}
_DIRECTIVE = re.compile(r"%.")
_MINUTE_US = 60_000_000
_DAY_US = 24 * 60 * _MINUTE_US
_EARLIEST_US = -(2**63) + 400 * _DAY_US
"""Before this time, the start of the year may not fit into 64 bits."""
_LAST_US = 2**63 - 1

UNKNOWN_TIME = "unknown-time"
"""A folder without `=` for rows without event time. Readers skip names that begin with `_` or `.`."""


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
                "not an event-time pattern",
                found=repr(self.pattern),
                expected=f"a path with some of {', '.join(_UNITS)}",
            )
        require_path(self.path_of(0))

    @property
    def unit(self) -> str:
        """The finest unit in the path."""
        units = {_UNITS[directive] for directive in _DIRECTIVE.findall(self.pattern)}
        return next(unit for unit in _FINEST_FIRST if unit in units)

    def floor(self, times: pa.Array) -> pa.Array:
        """Each time, rounded down to the beginning of its period."""
        # Not with Arrow or datetime: their calendars end in the years 32767 and 9999.
        times_us = times.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        known_us = np.maximum(times_us.fill_null(0).to_numpy(zero_copy_only=False), _EARLIEST_US)
        starts = known_us.view("datetime64[us]").astype(self._period).astype("datetime64[us]")
        nulls = times.is_null().to_numpy(zero_copy_only=False)
        return pa.array(starts.view(np.int64), pa.int64(), mask=nulls).cast(pa.timestamp("us"))

    def path_of(self, time_us: int) -> str:
        """The path of the period that contains a time."""
        days, rest_us = divmod(time_us, _DAY_US)
        date = np.datetime64(days, "D")
        first = date.astype("datetime64[M]")
        years, months = divmod(int(first.astype(np.int64)), 12)
        hours, minutes = divmod(rest_us // _MINUTE_US, 60)
        year = 1970 + years
        shown = {
            "%Y": f"{'-' if year < 0 else ''}{abs(year):04d}",
            "%m": f"{months + 1:02d}",
            "%d": f"{int((date - first.astype('datetime64[D]')).astype(np.int64)) + 1:02d}",
            "%H": f"{hours:02d}",
            "%M": f"{minutes:02d}",
        }
        return _DIRECTIVE.sub(lambda match: shown[match[0]], self.pattern)

    @property
    def path_of_none(self) -> str:
        """The path of rows without event time. It is as deep as all others, as readers expect.

        >>> EventTime("day=%Y-%m-%d/hour=%H").path_of_none
        'day=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__'
        >>> EventTime("events/%Y/%m").path_of_none
        'events/unknown-time/unknown-time'
        """
        return "/".join(map(_folder_of_none, self.pattern.split("/")))

    def end_us(self, time_us: int) -> int:
        """The end of the period that contains a time."""
        period = np.datetime64(max(time_us, _EARLIEST_US), "us").astype(self._period)
        end_us = int((period + 1).astype("datetime64[us]").astype(np.int64))
        # The end of the very last period does not fit into 64 bits.
        return end_us if end_us > time_us else _LAST_US

    @property
    def _period(self) -> str:
        return f"datetime64[{_CODES[self.unit]}]"


def _folder_of_none(part: str) -> str:
    name, equals, _ = part.partition("=")
    if not _DIRECTIVE.search(part):
        return part
    return f"{name}={DEFAULT_PARTITION}" if equals and not _DIRECTIVE.search(name) else UNKNOWN_TIME
