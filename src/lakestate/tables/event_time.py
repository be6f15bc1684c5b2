"""Points in event time as operator code writes them: microseconds since 1970, or a datetime."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from operator import index

from lakestate.errors import InvalidInputError

EventTimeLike = int | datetime

_EPOCH = datetime(1970, 1, 1)


def event_time_us(time: EventTimeLike, column_type: str) -> int:
    """A point in time in microseconds, for a column of type `timestamp` or `timestamp_ntz`.

    >>> event_time_us(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "timestamp")
    1000000
    >>> event_time_us(datetime(1970, 1, 1, 0, 0, 1), "timestamp_ntz"), event_time_us(7, "timestamp")
    (1000000, 7)

    A datetime must have a time zone exactly where the column has one: the machine's own zone,
    which Python would assume, differs from machine to machine.
    """
    if not isinstance(time, datetime):
        return _require_us(time)
    if (time.tzinfo is None) != (column_type == "timestamp_ntz"):
        raise InvalidInputError(
            f"not a point in time of a {column_type} column",
            found=repr(time),
            expected="no time zone" if column_type == "timestamp_ntz" else "a time zone",
            action="use datetime.replace(tzinfo=...)",
        )
    plain = time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)
    return (plain - _EPOCH) // timedelta(microseconds=1)


def _require_us(time: int) -> int:
    if isinstance(time, bool) or not hasattr(time, "__index__") or not -(2**63) <= time < 2**63:
        raise InvalidInputError(
            "not a point in time", found=repr(time), expected="a datetime, or microseconds since 1970"
        )
    return index(time)
