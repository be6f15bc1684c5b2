"""Rows of state tables on the command line: keys as people type them, Arrow batches as listings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import pyarrow as pa

from lakestate.cli.output import Listing
from lakestate.cli.session import Session
from lakestate.cli.waiting import note
from lakestate.errors import InvalidInputError
from lakestate.inspection import StateTable
from lakestate.protocol.names import did_you_mean


def split_table_name(named: str) -> tuple[str, str]:
    """Operator and table of `operator.table`; an operator's name may have dots."""
    operator, dot, table = named.rpartition(".")
    if not dot or not operator or not table:
        raise InvalidInputError("not the name of a table", found=repr(named), expected="operator.table")
    return operator, table


def parse_keys(texts: Sequence[str], table: StateTable) -> pa.Table:
    """Keys as they were typed: a value, `column=value` with commas between several, or a JSON object.

    Text becomes what the column holds; Arrow knows how. Any of the key columns may be given.
    """
    keys = [_parse_key(text, table) for text in texts]
    names = list(keys[0])
    if any(set(key) != set(names) for key in keys):
        raise InvalidInputError(
            "keys with different columns", found=", ".join(texts), expected=", ".join(names)
        )
    return pa.table({name: _column([key[name] for key in keys], name, table) for name in names})


def _parse_key(text: str, table: StateTable) -> dict[str, object]:
    columns = table.key_columns
    if text.startswith("{"):
        found = _parse_json(text)
    elif any(text.startswith(f"{name}=") for name in columns):
        parts = [part.partition("=") for part in text.split(",")]
        found = {name: value for name, _, value in parts}
    elif len(columns) == 1:
        found = {columns[0]: text}
    else:
        raise InvalidInputError(
            f"not a key of table {table.name}",
            found=repr(text),
            expected=",".join(f"{name}=…" for name in columns),
        )
    unknown = [name for name in found if name not in columns]
    if unknown:
        raise InvalidInputError(
            f"table {table.name} has no such key column",
            object_name=unknown[0],
            expected=f"some of {', '.join(columns)}",
            action=did_you_mean(unknown[0], columns),
        )
    return found


def _parse_json(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError as cause:
        raise InvalidInputError("not a JSON object", found=repr(text), action=str(cause)) from cause
    if not isinstance(found, dict) or not found:
        raise InvalidInputError("not a JSON object with a key", found=repr(text))
    return found


def _column(values: list[object], name: str, table: StateTable) -> pa.Array:
    wanted = table.schema.field(name).type
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    try:
        return pa.array(texts, pa.string()).cast(wanted)
    except pa.ArrowException as cause:
        raise InvalidInputError(
            f"not a value of column {name}", found=", ".join(map(repr, texts)), expected=str(wanted)
        ) from cause


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
        columns = [column.to_pylist() for column in batch.columns]
        yield from zip(*columns, strict=True)


def show_rows(session: Session, rows: pa.RecordBatchReader, limit: int) -> None:
    """Print rows as they come, no more than the limit; 0 for all."""
    counted = _Counted(row_listing(rows.schema, rows, limit + 1 if limit else None), limit)
    session.show(Listing(distinct(rows.schema.names), counted, is_data=True))
    if limit and counted.rows > limit:
        note(f"only the first {limit} rows are shown: --limit 0 shows all")


class _Counted:
    """Rows up to a limit, counted up to one more: whether there are more is then known."""

    def __init__(self, listing: Listing, limit: int) -> None:
        self._listing = listing
        self._limit = limit
        self.rows = 0

    def __iter__(self) -> Iterator[Sequence[object]]:
        for row in self._listing.rows:
            self.rows += 1
            if not self._limit or self.rows <= self._limit:
                yield row
