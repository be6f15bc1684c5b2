"""Whether a declared table can read what is stored under its name. Pure.

Three answers: it can, it can after a declared migration, or it cannot. The last lists every reason at
once, so that one attempt shows everything that must change.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from lakestate.protocol.metadata import Column, TableConfig

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


@dataclass(frozen=True, slots=True)
class Compatible:
    """The stored files can be read as they are."""


@dataclass(frozen=True, slots=True)
class NeedsMigration:
    """The stored files are of an older version that the declaration knows how to migrate."""

    stored_version: int
    declared_version: int


@dataclass(frozen=True, slots=True)
class Incompatible:
    """The declaration cannot read what is stored."""

    reasons: tuple[str, ...]


Compatibility = Compatible | NeedsMigration | Incompatible


def compatibility(
    stored: TableConfig,
    declared: TableConfig,
    migrates_from: Collection[int] = (),
    time_column_before: str | None = None,
) -> Compatibility:
    """Compare a stored declaration with the one of the code that wants to read it.

    `migrates_from` are the older versions for which the declared table has a complete chain of steps.
    `time_column_before` is the declared time column's name in the stored version, if it was renamed.
    """
    reasons = _fixed_differences(stored, declared)
    if stored.state_version > declared.state_version:
        reasons.append(
            f"stored with state version {stored.state_version}, newer than the declared "
            f"{declared.state_version}: run the newer code"
        )
    elif stored.state_version < declared.state_version:
        if stored.state_version not in migrates_from:
            reasons.append(
                f"no migration from state version {stored.state_version} to {declared.state_version}"
            )
        else:
            reasons += _event_time_differences(stored, declared, time_column_before)
    else:
        reasons += _column_differences(stored, declared)
    if reasons:
        return Incompatible(tuple(reasons))
    if stored.state_version == declared.state_version:
        return Compatible()
    return NeedsMigration(stored.state_version, declared.state_version)


def widens(narrow: str, wide: str) -> bool:
    """True if every value of one column type is a value of the other.

    >>> widens("int", "bigint"), widens("bigint", "int"), widens("decimal(10,2)", "decimal(12,2)")
    (True, False, True)
    """
    if narrow in _INTEGERS and wide in _INTEGERS:
        return _INTEGERS.index(narrow) <= _INTEGERS.index(wide)
    if (narrow, wide) in {
        ("float", "double"),
        ("int", "double"),
        ("smallint", "double"),
        ("tinyint", "double"),
    }:
        return True
    small, large = _DECIMAL.fullmatch(narrow), _DECIMAL.fullmatch(wide)
    if small and large:
        precision, scale = int(small[1]), int(small[2])
        wider_precision, wider_scale = int(large[1]), int(large[2])
        return wider_scale >= scale and wider_precision - wider_scale >= precision - scale
    return narrow == wide


def _fixed_differences(stored: TableConfig, declared: TableConfig) -> list[str]:
    """Differences that no migration can resolve, because they decide which subtask owns a row."""
    if stored.table_type != declared.table_type:
        return [f"stored as {stored.table_type.name}, declared as {declared.table_type.name}"]
    stored_types = [column.type for column in stored.key_columns]
    declared_types = [column.type for column in declared.key_columns]
    reasons = []
    if stored_types != declared_types:
        reasons.append(
            f"key is {_columns_text(stored.key_columns)}, declared {_columns_text(declared.key_columns)}"
        )
    stored_route = _positions(stored)
    if stored_route != _positions(declared) and not reasons:
        reasons.append(f"routed by {stored.routing_columns}, declared {declared.routing_columns}")
    return reasons


def evolve(stored: TableConfig, declared: TableConfig) -> TableConfig:
    """The declaration as it is stored from now on: it remembers columns that it no longer has.

    A column of that name would be read from files that hold what it was before.
    """
    known = {column.name for column in declared.value_columns}
    gone = {column.name for column in stored.value_columns if column.meaning} - known
    removed = tuple(sorted({*stored.removed_columns, *gone}))
    return replace(declared, removed_columns=removed) if removed else declared


def _column_differences(stored: TableConfig, declared: TableConfig) -> list[str]:
    reasons = _meaning_differences(stored, declared)
    for kind, old, new in (
        ("key", stored.key_columns, declared.key_columns),
        ("value", _fixed_columns(stored), _fixed_columns(declared)),
    ):
        if old != new:
            reasons.append(
                f"{kind} columns are {_columns_text(old)}, declared {_columns_text(new)}: "
                "raise the state version and declare the change"
            )
    if stored.time_column not in (declared.time_column, _without_times(declared)):
        reasons.append(f"time column is {stored.time_column}, declared {declared.time_column}")
    return reasons


def _without_times(declared: TableConfig) -> str | None:
    """The time column of a table that may begin to follow one: its rows hold that column already."""
    return declared.time_column if declared.table_type.is_ordered_by_time else None


def _fixed_columns(config: TableConfig) -> tuple[Column, ...]:
    return tuple(column for column in config.value_columns if not column.meaning)


def _meaning_differences(stored: TableConfig, declared: TableConfig) -> list[str]:
    """What keeps columns of a ready operator from being read: those that are new or gone do not."""
    reasons = []
    before = {column.name: column for column in stored.value_columns if column.meaning}
    for new in (column for column in declared.value_columns if column.meaning):
        old = before.get(new.name)
        if old is None:
            if new.name in stored.removed_columns:
                reasons.append(f"column {new.name} was removed earlier: give what is new another name")
        elif old.meaning != new.meaning:
            reasons.append(
                f"column {new.name} holds {old.meaning}, declared as {new.meaning}: give it another name"
            )
        elif not widens(old.type, new.type):
            reasons.append(
                f"column {new.name} is {old.type}, declared {new.type}, which cannot hold all of its values: "
                "give it another name"
            )
    return reasons


def _event_time_differences(stored: TableConfig, declared: TableConfig, before: str | None) -> list[str]:
    """Rows of a table by time are found and dropped by the time that they were stored under."""
    if stored.table_type != declared.table_type or not declared.table_type.is_ordered_by_time:
        return []
    name = before or declared.time_column
    if name == stored.time_column:
        return []
    was = "" if name == declared.time_column else f", which was {name}"
    found = f"time column is {stored.time_column}, declared {declared.time_column}{was}"
    return [f"{found}: a migration can rename it with ColumnChanges, but cannot choose another column"]


def _positions(config: TableConfig) -> list[int]:
    names = [column.name for column in config.key_columns]
    return [names.index(name) for name in config.routing_columns if name in names]


def _columns_text(columns: Collection[Column]) -> str:
    return "(" + ", ".join(str(column) for column in columns) + ")"
