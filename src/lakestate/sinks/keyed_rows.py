"""Rows that are kept by key: what every sink with a `key` takes, and what it refuses, in the same words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError
from lakestate.protocol.names import did_you_mean
from lakestate.row_kind import AFTER, BEFORE, CHANGE, DELETE, INSERT, RowKind, StreamKind, require_kind

_CHANGES = (INSERT, DELETE, BEFORE, AFTER)

Changes = TypeVar("Changes", pa.Array, pa.ChunkedArray)


def key_columns(key: str | Sequence[str], where: str) -> tuple[str, ...]:
    """The columns of a key as they were given: one, or several that differ.

    >>> key_columns("user", "table totals"), key_columns(["user", "day"], "table totals")
    (('user',), ('user', 'day'))
    """
    columns = (key,) if isinstance(key, str) else tuple(key)
    if len(set(columns)) < len(columns):
        raise InvalidInputError("a key column is named twice", object_name=where, found=columns)
    return columns


def kinds_taken(key: Sequence[str]) -> tuple[RowKind, ...]:
    """Final rows; with a key also updates and changes."""
    return tuple(RowKind) if key else (RowKind.APPEND,)


def require_key(key: Sequence[str], kind: StreamKind, who: str) -> None:
    """Refuse rows that replace each other, if a sink has no key, or another one than they have.

    >>> require_key(["item"], StreamKind(RowKind.UPSERT, ("user",)), "sink out")
    Traceback (most recent call last):
    lakestate.errors.InvalidInputError: sink out has another key than its rows; found key=['item']; ...
    """
    instead = f"pass key={list(kind.key)} to keep one row for each key"
    require_kind(kind, kinds_taken(key), who, instead)
    if kind.key and key and set(kind.key) != set(key):
        raise InvalidInputError(
            f"{who} has another key than its rows",
            found=f"key={list(key)}",
            expected=f"key={list(kind.key)}, by which these rows replace each other",
        )


def require_key_columns(key: Sequence[str], names: Sequence[str], where: str) -> None:
    """Refuse rows that lack a column of the key."""
    missing = [name for name in key if name not in names]
    if missing:
        raise InvalidInputError(
            "key columns are not in the rows",
            object_name=where,
            found=", ".join(names) or "no column",
            expected=", ".join(key),
            action=did_you_mean(missing[0], names) or "name columns that the rows have",
        )


def require_changes(changes: Changes) -> Changes:
    """The column `_change` itself, if each of its rows says what it does."""
    is_known = pc.is_in(changes, pa.array(_CHANGES, changes.type))
    if not pc.all(is_known).as_py():
        unknown = changes.filter(pc.invert(is_known))
        raise InvalidInputError(
            "a row does not say what it changes",
            object_name=f"column {CHANGE}",
            found=unknown[0].as_py(),
            expected=", ".join(_CHANGES),
            action="correct it before the sink",
        )
    return changes
