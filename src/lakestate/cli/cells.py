"""Values of listings, and how they look to people and to programs."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence

from lakestate.protocol.values import Epoch, Generation

_UNITS = ("kB", "MB", "GB", "TB", "PB")


class Bytes(int):
    """A number of bytes."""


class Millis(int):
    """A duration in milliseconds."""


class Share(float):
    """A part of a whole, which people see as a bar."""


BAR_WIDTH = 30
"""The characters of a bar for the whole."""


def moment_of_ms(milliseconds: int | None) -> dt.datetime | None:
    """A time in milliseconds since 1970, or None if there is none."""
    return None if milliseconds is None else moment_of_us(milliseconds * 1000)


def moment_of_us(microseconds: int | None) -> dt.datetime | None:
    """A time in microseconds since 1970; None if there is none, or it is beyond what calendars have."""
    if microseconds is None:
        return None
    try:
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=microseconds)
    except OverflowError:
        return None


def size_text(size_bytes: int) -> str:
    """A size as people say it.

    >>> size_text(17), size_text(1_500), size_text(128_000_000)
    ('17 B', '1.5 kB', '128.0 MB')
    """
    if abs(size_bytes) < 1000:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in _UNITS:
        size /= 1000
        if abs(size) < 999.95 or unit == _UNITS[-1]:
            break
    return f"{size:,.1f} {unit}"


def duration_text(milliseconds: int) -> str:
    """A duration as people say it.

    >>> duration_text(250), duration_text(61_500), duration_text(7_380_000)
    ('250 ms', '1 min 1 s', '2 h 3 min')
    """
    seconds = milliseconds / 1000
    if seconds < 1:
        return f"{milliseconds} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def text_for_people(value: object) -> str:
    """A cell of a table.

    >>> text_for_people(None), text_for_people(Bytes(2048)), text_for_people(12345), text_for_people(True)
    ('', '2.0 kB', '12,345', 'yes')
    >>> text_for_people(Share(0.1)), text_for_people(Share(0.001))
    (' 10.0% ███', '  0.1%')
    >>> text_for_people([Epoch(12345), Epoch(12346)])
    '12345, 12346'
    """
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case Bytes():
            return size_text(value)
        case Millis():
            return duration_text(value)
        case Share():
            return f"{value:6.1%} {'█' * round(value * BAR_WIDTH)}".rstrip()
        case Epoch() | Generation():
            # As commands take them.
            return str(value)
        case int():
            return f"{value:,}"
        case dt.datetime():
            return _moment_text(value, " ")
        case bytes():
            return value.hex()
        case Mapping():
            return printable(json.dumps(plain_value(value), ensure_ascii=False))
        case list() | tuple():
            return ", ".join(text_for_people(each) for each in value)
        case _:
            return printable(str(value))


def text_of_data(value: object) -> str:
    """A cell with a value of somebody's state: nothing is left out, and a key can be copied.

    >>> [text_of_data(value) for value in (None, "", True, 12345, ["a", None], {"n": 1})]
    ['', '""', 'true', '12345', '["a", null]', '{"n": 1}']
    """
    match value:
        case "":
            return '""'
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case list() | tuple():
            return printable(json.dumps(plain_value(value), ensure_ascii=False))
        case _:
            return text_for_people(value)


def printable(text: str) -> str:
    """Text without characters that a terminal would obey: state holds what strangers have sent.

    >>> printable("a\\x1b[31m\\nb")
    'a\\\\x1b[31m\\\\nb'
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )


def plain_value(value: object) -> object:
    """A value as JSON holds it. Times are text in UTC, bytes are hexadecimal.

    >>> plain_value([Bytes(2048), b"ab", dt.datetime(2026, 1, 1, tzinfo=dt.UTC)])
    [2048, '6162', '2026-01-01T00:00:00.000Z']
    """
    match value:
        case None | bool() | str():
            return value
        case float():
            # JSON has no infinity and no "not a number".
            return value if value - value == 0 else str(value)
        case int():
            return int(value)
        case dt.datetime():
            return _moment_text(value, "T")
        case bytes():
            return value.hex()
        case Mapping():
            return {str(name): plain_value(each) for name, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain_value(each) for each in value]
        case _:
            return str(value)


def csv_value(value: object) -> object:
    """A field of CSV: nothing for None, JSON for what has parts."""
    plain = plain_value(value)
    if isinstance(plain, bool):
        return "true" if plain else "false"
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, dict | list) else plain


def is_number(value: object) -> bool:
    """Whether a cell stands at the right of its column."""
    return isinstance(value, int | float) and not isinstance(value, bool | Share)


def _moment_text(moment: dt.datetime, separator: str) -> str:
    if moment.tzinfo is None:
        return moment.isoformat(separator)
    utc = moment.astimezone(dt.UTC).replace(tzinfo=None)
    return utc.isoformat(separator, "microseconds" if utc.microsecond % 1000 else "milliseconds") + "Z"


def joined(values: Sequence[object]) -> str | None:
    """Values with commas between them; None if there are none."""
    return ", ".join(str(value) for value in values) or None
