"""`stream.key_by(…).deduplicate(…)` as nodes."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Any

from lakestate.config import duration_us
from lakestate.errors import InvalidInputError
from lakestate.operators.operator import Operator
from lakestate.operators.selection import FirstRows, FirstRowsForEver, NewestRows, RowColumns, SettledRows
from lakestate.row_kind import CHANGE, Emit, StreamKind
from lakestate.spark.graph.column_names import column_named, quote_name
from lakestate.spark.graph.nodes import ApplyNode, KeyByNode
from lakestate.spark.streams.building import Building, quoted

FOR_EVER = "for ever"
TIME = "_time"


class Keep(Enum):
    """Which row of a key is kept."""

    FIRST = "first"
    LAST = "last"


class TimeKind(Enum):
    """What `within` is measured by."""

    EVENT = "event"
    PROCESSING = "processing"


def add_deduplicate(
    building: Building,
    keyed: Any,
    operator_id: str,
    *,
    within: str | timedelta | None,
    keep: str,
    time: str,
    emit: Emit | str | None,
) -> tuple[ApplyNode, StreamKind]:
    """Add the nodes of a deduplication."""
    where = f"deduplicate {operator_id}"
    kept, measured = _choice(Keep, keep, "keep", where), _choice(TimeKind, time, "time", where)
    within_us = _within_us(within, where)
    default = Emit.FINAL if kept is Keep.FIRST else Emit.UPDATES
    emitted = default if emit is None else Emit.of(emit, where)
    _check_emission(kept, emitted, within_us, where)
    if kept is Keep.LAST and measured is TimeKind.PROCESSING:
        raise InvalidInputError(
            "which row is the last is decided by event time",
            object_name=where,
            found='time="processing"',
            action='leave out time, or pass keep="first"',
        )
    if kept is Keep.LAST or (measured is TimeKind.EVENT and within_us is not None):
        building.require_time(keyed, where)
    node, columns, column = rows_with_time(building, keyed, where)
    operator = _operator(columns, column, kept, measured, within_us, emitted)
    if isinstance(operator, SettledRows):
        # A row comes out when the watermark has passed it by that much.
        time_sql = building.require_time(keyed, where)
        operator.output_time = f"{time_sql} + INTERVAL {within_us} MICROSECOND"
    key = columns.key if emitted is not Emit.FINAL else ()
    return building.graph.add(ApplyNode(node, operator_id, operator)), StreamKind(emitted.kind, key)


def _operator(
    columns: RowColumns,
    time: str | None,
    keep: Keep,
    measured: TimeKind,
    within_us: int | None,
    emit: Emit,
) -> Operator:
    if keep is Keep.LAST and time is not None:
        if emit is Emit.FINAL and within_us is not None:
            return SettledRows(columns, time=time, within_us=within_us)
        return NewestRows(columns, time=time, within_us=within_us, emit=emit)
    if measured is TimeKind.EVENT and within_us is not None and time is not None:
        return FirstRows(columns, time=time, within_us=within_us)
    return FirstRowsForEver(columns, time=time, ttl_us=within_us)


def rows_with_time(building: Building, keyed: Any, where: str) -> tuple[Any, RowColumns, str | None]:
    """Keyed rows with all of their columns, and the name of the one that holds their event time, if any."""
    columns, key = building.columns(keyed), building.schemas.key(keyed)
    names = [column.name for column in columns]
    if CHANGE in names:
        raise InvalidInputError(
            "the rows have a column whose name says that they are changes",
            object_name=f"{CHANGE} of {where}",
            action="leave it out, or rename it, with select",
        )
    time_sql = building.time_sql(keyed)
    plain = None if time_sql is None else column_named(time_sql, names)
    if time_sql is None or (plain is not None and plain not in key):
        return keyed, RowColumns(columns, key), plain
    RowColumns(columns, key).require_free(TIME, where)
    selected = building.select(keyed, quoted(names) | {TIME: time_sql}, where)
    routed = building.graph.add(KeyByNode(selected, tuple(map(quote_name, key))))
    return routed, RowColumns(building.columns(routed), key, (TIME,)), TIME


def _within_us(within: str | timedelta | None, where: str) -> int | None:
    if within == FOR_EVER:
        return None
    if within is None:
        raise InvalidInputError(
            "it is not said for how long keys are remembered",
            object_name=where,
            action=f'pass within="24 hours", or within="{FOR_EVER}" if all keys can be kept',
        )
    return duration_us(within)


def _check_emission(keep: Keep, emit: Emit, within_us: int | None, where: str) -> None:
    if keep is Keep.FIRST and emit is not Emit.FINAL:
        raise InvalidInputError(
            "the first row of a key never changes",
            object_name=where,
            found=f'emit="{emit.value}"',
            action='leave out emit, or pass keep="last"',
        )
    if keep is Keep.LAST and emit is Emit.FINAL and within_us is None:
        raise InvalidInputError(
            "the last row of a key that is remembered for ever is never final",
            object_name=where,
            action='pass within="24 hours", or emit="updates" or "changes"',
        )


def _choice(kind: Any, value: Any, name: str, where: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        expected = ", ".join(repr(each.value) for each in kind)
        raise InvalidInputError(
            f"unknown value of {name}", object_name=where, found=repr(value), expected=expected
        ) from None
