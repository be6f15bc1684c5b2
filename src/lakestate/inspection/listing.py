"""What lists of jobs, epochs, operators and tables have in common: they show themselves as tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

Row = TypeVar("Row")

_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)


class Listing(tuple[Row, ...]):
    """Rows of one kind, as a tuple that shows itself as a table: as text, as HTML in a notebook, as Arrow."""

    __slots__ = ()

    def __new__(cls, rows: Iterable[Row] = ()) -> Listing[Row]:
        """Take the rows."""
        return super().__new__(cls, tuple(rows))

    def __repr__(self) -> str:
        if not self:
            return "(nothing)"
        names, cells = self._cells()
        table = [names, *cells]
        widths = [max(len(row[place]) for row in table) for place in range(len(names))]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in table)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if not self:
            return "<p>nothing</p>"
        return html_table(*self._cells())

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table, with a column for each field; what is nested is text."""
        rows = [{name: _plain(item) for name, item in row_items(row)} for row in self]
        return pa.Table.from_pylist(rows, listing_schema(type(self[0])) if self else pa.schema([]))

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        rows = [dict(row_items(row)) for row in self]
        names = [name for name in rows[0] if any(row[name] not in (None, "", ()) for row in rows)]
        return names, [[cell_text(name, row[name]) for name in names] for row in rows]


def listing_schema(kind: type) -> pa.Schema:
    """The columns of a list of such rows."""
    hints = get_type_hints(kind)
    return pa.schema([pa.field(name, _arrow_type(hint)) for name, hint in hints.items()])


def _arrow_type(hint: Any) -> pa.DataType:
    if get_origin(hint) in (UnionType, Union):
        (hint,) = (each for each in get_args(hint) if each is not NoneType)
    if get_origin(hint) is tuple:
        return pa.list_(pa.string())
    if issubclass(hint, bool):
        return pa.bool_()
    if issubclass(hint, int):
        return pa.int64()
    if issubclass(hint, float):
        return pa.float64()
    return pa.timestamp("us", tz="UTC") if issubclass(hint, datetime) else pa.string()


def row_items(row: object) -> list[tuple[str, Any]]:
    """The fields of a row and their values."""
    assert is_dataclass(row)
    return [(item.name, getattr(row, item.name)) for item in fields(row)]


def html_table(names: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """An HTML table of texts, which are escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def cell_text(name: str, value: object) -> str:
    """A value as people read it.

    >>> cell_text("size_bytes", 2048), cell_text("rows", 1234567), cell_text("committed", True)
    ('2.0 KiB', '1,234,567', 'yes')
    """
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int() if name.endswith("_bytes"):
            return _bytes_text(value)
        case int() if name.endswith("_us"):
            moment = time_of_us(value)
            return str(value) if moment is None else cell_text(name, moment)
        case int():
            return f"{value:,}" if name != "epoch" else str(value)
        case float():
            return f"{value:,.3g}"
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S")
        case tuple():
            return ", ".join(map(str, value))
    return str(value)


def data_text(value: object) -> str:
    """A value of somebody's state as it is, with all of its digits.

    >>> [data_text(value) for value in (None, "", True, 1234567, 1234567.25, b"a")]
    ['', '""', 'true', '1234567', '1234567.25', '61']
    >>> data_text(datetime(2026, 1, 1, 12, 0, 0, 6, tzinfo=UTC))
    '2026-01-01 12:00:00.000006Z'
    """
    match value:
        case None:
            return ""
        case "":
            return '""'
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat(" ").replace("+00:00", "Z")
        case bytes():
            return value.hex()
    return str(value)


def time_of_us(moment_us: int | None) -> datetime | None:
    """A time in microseconds since 1970, or None if there is none, or no date has it."""
    if moment_us is None:
        return None
    try:
        return _EPOCH_START + timedelta(microseconds=moment_us)
    except OverflowError:
        return None


def time_of_ms(moment_ms: int) -> datetime | None:
    """A time in milliseconds since 1970, or None if no date has it."""
    return time_of_us(moment_ms * 1000)


def _bytes_text(count: int) -> str:
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{count} B" if units[0] == "B" else f"{size:.1f} {units[0]}"


def _plain(value: object) -> object:
    match value:
        case tuple():
            return [str(item) for item in value]
        case bool() | None | datetime() | float():
            return value
        case int():
            return int(value)
    return str(value)
