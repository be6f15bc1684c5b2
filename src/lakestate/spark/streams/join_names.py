"""The columns of a join: what they are called, what holds the time, and what the output's time is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakestate.errors import InvalidInputError
from lakestate.spark.graph.column_names import column_named, is_name, quote_name
from lakestate.spark.streams.building import Building

TIME = "_time"
"""The column of a side's event time, where no column that is not a key has it."""

_IN_SQL = re.compile(r"'(?:[^']|'')*'|`(?:[^`]|``)+`|[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class JoinNames:
    """The names of both sides' columns in the output, by their names in the input."""

    left: Mapping[str, str]
    right: Mapping[str, str]
    """Of the key columns too, which have the names of the left ones."""


def join_names(
    left: Sequence[str],
    right: Sequence[str],
    keys: tuple[Sequence[str], Sequence[str]],
    prefix: tuple[str, str] | None,
    where: str,
) -> JoinNames:
    """The key keeps the left names. Other names that both sides have get a prefix, or are refused.

    >>> names = join_names(["id", "ts"], ["id", "order", "ts"], (["id"], ["order"]), ("", "paid_"), "join")
    >>> names.left, names.right
    ({'id': 'id', 'ts': 'ts'}, {'id': 'paid_id', 'order': 'id', 'ts': 'paid_ts'})
    """
    _check_prefix(prefix, where)
    left_key, right_key = keys
    others = [name for name in right if name not in right_key]
    left_lower, right_lower = {name.lower() for name in left}, {name.lower() for name in others}
    before = ("", "") if prefix is None else prefix
    new_left = {
        name: before[0] + name if name.lower() in right_lower and name not in left_key else name
        for name in left
    }
    new_right = {name: before[1] + name if name.lower() in left_lower else name for name in others}
    given = [name.lower() for name in (*new_left.values(), *new_right.values())]
    twice = sorted({name for name in given if given.count(name) > 1})
    if twice:
        raise InvalidInputError(
            "both sides have columns of the same name",
            object_name=where,
            found=", ".join(twice),
            action='pass prefix=("l_", "r_"), which is put before names that both sides have, or select() '
            "other names first",
        )
    keyed = dict(zip(right_key, left_key, strict=True))
    return JoinNames(new_left, {name: keyed.get(name) or new_right[name] for name in right})


def _check_prefix(prefix: Any, where: str) -> None:
    if prefix is None:
        return
    is_pair = isinstance(prefix, tuple | list) and len(prefix) == 2
    if not is_pair or not all(isinstance(each, str) for each in prefix):
        raise InvalidInputError(
            "prefix takes one text for each side",
            object_name=where,
            found=repr(prefix),
            expected='("l_", "r_")',
        )


def time_column(time_sql: str, columns: Sequence[str]) -> str | None:
    """The column that is the event time, if it is one and no expression."""
    return column_named(time_sql, columns) if is_name(time_sql) else None


def rename_in_sql(text: str, names: Mapping[str, str]) -> str:
    """An expression over columns that have other names now.

    >>> print(rename_in_sql("window_end - INTERVAL 1 MICROSECOND", {"window_end": "l_window_end"}))
    `l_window_end` - INTERVAL 1 MICROSECOND
    """

    def renamed(match: re.Match[str]) -> str:
        found = match[0]
        name = found[1:-1].replace("``", "`") if found.startswith("`") else found
        return quote_name(names[name]) if name in names and not found.startswith("'") else found

    return _IN_SQL.sub(renamed, text)


def later_sql(time_sql: str, by_us: int) -> str:
    """A time so many microseconds after another, or the same if that is earlier."""
    if by_us <= 0:
        return time_sql
    seconds, rest = divmod(by_us, 1_000_000)
    return f"({time_sql}) + INTERVAL '{seconds}.{rest:06d}' SECOND"


def check_keys(building: Building, left: Any, right: Any, where: str) -> None:
    """Refuse keys that are not of the same types: equal values would be in different subtasks."""
    keys = [building.key_columns(node) for node in (left, right)]
    types = [[column.type for column in key] for key in keys]
    if types[0] != types[1]:
        raise InvalidInputError(
            "the keys of both sides are of different types",
            object_name=where,
            found=" and ".join(", ".join(map(str, key)) for key in keys),
            action="cast one of them before key_by, for example "
            'select("CAST(id AS BIGINT) AS id", …).key_by("id")',
        )


def check_free(selected: Mapping[str, str], where: str) -> None:
    """Refuse a column with the name of the one for the time."""
    if TIME in selected:
        raise InvalidInputError(
            "a join needs this name for a column of its state",
            object_name=where,
            found=TIME,
            action="rename the column with select() first",
        )
