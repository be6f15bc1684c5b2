"""Rows of state tables on the command line: Arrow batches as listings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

import pyarrow as pa

from lakestate.cli.output import Listing
from lakestate.cli.session import Session
from lakestate.cli.waiting import note, waiting

ROWS_AWAITED = 100
"""A query works before it has its first rows: somebody waits for these."""


def distinct(names: Sequence[str]) -> list[str]:
    """Names of columns, with a number after one that was there before: an object has each name once.

    >>> distinct(["user", "n", "user", "user_2"])
    ['user', 'n', 'user_2', 'user_2_2']
    """
    found: list[str] = []
    for name in names:
        number, free = 1, name
        while free in found:
            number += 1
            free = f"{name}_{number}"
        found.append(free)
    return found


def row_listing(schema: pa.Schema, batches: Iterable[pa.RecordBatch], limit: int | None) -> Listing:
    """Rows as they come, no more than the limit."""
    return Listing(schema.names, islice(_rows(batches), limit))


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Sequence[object]]:
    for batch in batches:
        yield from zip(*map(_values, batch.columns), strict=True)


def _values(column: pa.Array) -> list[object]:
    """Decimals without a fraction, such as a sum of integers in DuckDB, are numbers in JSON."""
    values: list[object] = column.to_pylist()
    if pa.types.is_decimal(column.type) and column.type.scale == 0:
        return [None if value is None else int(str(value)) for value in values]
    return values


def first_rows(rows: pa.RecordBatchReader, count: int) -> pa.RecordBatchReader:
    """No more rows than this. What comes after them is not read."""

    def batches() -> Iterator[pa.RecordBatch]:
        left = count
        for batch in rows:
            yield batch.slice(0, left)
            left -= min(left, batch.num_rows)
            if not left:
                return

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


def show_rows(
    session: Session, rows: pa.RecordBatchReader, limit: int, *, if_none: str | None = None
) -> None:
    """Print rows as they come, no more than the limit; 0 for all. If there are none, a note says so."""
    wanted = iter(row_listing(rows.schema, rows, limit + 1 if limit else None).rows)
    with waiting("reading rows"):
        first = list(islice(wanted, ROWS_AWAITED))
    counted = _Counted(chain(first, wanted), limit)
    session.show(Listing(distinct(rows.schema.names), counted, is_data=True))
    if limit and counted.rows > limit:
        note(f"only the first {limit} rows are shown: --limit 0 shows all")
    if not counted.rows and if_none is not None:
        note(if_none)


class _Counted:
    """Rows up to a limit, counted up to one more: whether there are more is then known."""

    def __init__(self, found: Iterable[Sequence[object]], limit: int) -> None:
        self._found = found
        self._limit = limit
        self.rows = 0

    def __iter__(self) -> Iterator[Sequence[object]]:
        for row in self._found:
            self.rows += 1
            if not self._limit or self.rows <= self._limit:
                yield row
