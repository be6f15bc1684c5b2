"""The changes between two lists of rows, as a model of what `StateChanges` returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
Changes = list[tuple[str, bool, str]]


def changes_by_key(
    before: Sequence[Row], after: Sequence[Row], key: Sequence[str], expired: Callable[[Row], bool]
) -> Changes:
    """Of rows with unique keys."""
    old = {tuple(row[name] for name in key): row for row in before}
    new = {tuple(row[name] for name in key): row for row in after}
    found: list[tuple[str, bool, Row]] = []
    for each in old.keys() | new.keys():
        match old.get(each), new.get(each):
            case None, row if row is not None:
                found.append(("insert", False, row))
            case row, None if row is not None:
                found.append(("delete", expired(row), row))
            case one, other if one is not None and other is not None and one != other:
                found += [("update_preimage", False, one), ("update_postimage", False, other)]
    return as_changes(found)


def changes_of_bags(before: Sequence[Row], after: Sequence[Row], expired: Callable[[Row], bool]) -> Changes:
    """Of rows that may be equal."""
    rows = {repr(row): row for row in (*before, *after)}
    more = Counter(map(repr, after))
    more.subtract(map(repr, before))
    found = [("insert", False, rows[text]) for text, count in more.items() for _ in range(count)]
    found += [("delete", expired(rows[text]), rows[text]) for text, n in more.items() for _ in range(-n)]
    return as_changes(found)


def as_changes(rows: Sequence[tuple[str, bool, Row]]) -> Changes:
    """In an order that does not matter."""
    return sorted((change, expired, repr(row)) for change, expired, row in rows)


def changes_of(table: Any) -> Changes:
    """The rows of `StateChanges` in the same form."""
    return as_changes([(row.pop("_change"), row.pop("_expired"), row) for row in table.to_pylist()])
