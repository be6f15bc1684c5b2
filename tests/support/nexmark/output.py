"""What a query of Nexmark has written, as rows to compare with its batch answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakestate as ls
from lakestate.row_kind import AFTER, BEFORE, CHANGE, DELETE, INSERT, RowKind, StreamKind

EACH_EPOCH = ls.Roll(bytes=1, interval=None)
"""Every epoch has files of its own, so that the name of a file says which rows are newer."""

SHOWN = 3
ADDED = {INSERT: 1, AFTER: 1, BEFORE: -1, DELETE: -1}
"""What a row of a stream of changes does to the result."""

Rows = Counter[tuple[tuple[str, Any], ...]]


@dataclass(frozen=True)
class Written:
    """A row, and the epoch that wrote it."""

    epoch: int
    row: Mapping[str, Any]


def read_written(folder: Path) -> list[Written]:
    """All visible rows, with the columns that are in their path."""
    files = [path.relative_to(folder) for path in sorted(folder.rglob("*.parquet"))]
    visible = [path for path in files if not any(part.startswith((".", "_")) for part in path.parts)]
    return [
        Written(_epoch_of(path), row | _columns_in(path))
        for path in visible
        for row in pq.ParquetFile(folder / path).read().to_pylist()
    ]


def result_of(written: Iterable[Written], kind: StreamKind) -> Rows:
    """The rows that stand at the end: simply all, or the newest of each key, or those after all changes."""
    match kind.kind:
        case RowKind.APPEND:
            return count_rows(each.row for each in written)
        case RowKind.UPSERT:
            return count_rows(_newest(written, kind.key))
        case RowKind.CHANGES:
            return _after_changes(written)


def count_rows(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """How often each row is there, whatever the order of its columns."""
    return Counter(tuple(sorted(row.items())) for row in rows)


def sum_by(rows: Rows, key: str, value: str) -> Rows:
    """One row for each key, with the sum of a column: for windows that are other ones in every run."""
    sums: Counter[Any] = Counter()
    for row in rows.elements():
        sums[dict(row)[key]] += dict(row)[value]
    return count_rows({key: each, value: total} for each, total in sums.items())


def check_same(found: Rows, answer: pa.Table) -> None:
    """Fail with some of the rows that are missing, and some that should not be there."""
    expected = count_rows(answer.to_pylist())
    missing, unexpected = expected - found, found - expected
    assert expected, "a query without any row proves nothing"
    assert ([*missing][:SHOWN], [*unexpected][:SHOWN]) == ([], []), (
        f"{missing.total():,} of {expected.total():,} rows are missing, {unexpected.total():,} are too many"
    )


def _after_changes(written: Iterable[Written]) -> Rows:
    rows: Rows = Counter()
    for each in written:
        change = ADDED[each.row[CHANGE]]
        (plain,) = count_rows([{name: value for name, value in each.row.items() if name != CHANGE}])
        rows[plain] += change
    assert [row for row, count in rows.items() if count < 0][:SHOWN] == [], "taken back, but never there"
    return +rows


def _newest(written: Iterable[Written], key: Sequence[str]) -> list[Mapping[str, Any]]:
    newest: dict[tuple[Any, ...], Written] = {}
    for each in sorted(written, key=lambda each: each.epoch):
        values = tuple(each.row[name] for name in key)
        before = newest.get(values)
        assert before is None or before.epoch < each.epoch, f"{values} is twice in epoch {each.epoch}"
        newest[values] = each
    return [each.row for each in newest.values()]


def _epoch_of(path: Path) -> int:
    found = re.search(r"-(\d{10})-\d{5}-[^/]*$", path.name)
    assert found is not None, path
    return int(found[1])


def _columns_in(path: Path) -> dict[str, str]:
    return dict(part.split("=", 1) for part in path.parts[:-1])
