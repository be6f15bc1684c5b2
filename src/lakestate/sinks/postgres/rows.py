"""Rows for COPY, and the rows that PostgreSQL could never hold.

A row is refused by the subtask that writes it, before its epoch is published: afterwards the epoch could
neither be delivered nor taken back.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.types as is_type

from lakestate.errors import InvalidInputError
from lakestate.row_kind import BEFORE, CHANGE, RowKind
from lakestate.sinks.postgres.types import TargetColumn

ORDER = "_lakestate_order"
"""The number of a row in its epoch: of several rows of one key the last one counts."""
_NULL_CHARACTER = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""As JSON escapes it. A backslash before it is escaped itself."""
_FIRST_DAY = date(1, 1, 1).toordinal() - date(1970, 1, 1).toordinal()
_LAST_DAY = date(9999, 12, 31).toordinal() - date(1970, 1, 1).toordinal()
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000}


def check_rows(
    batch: pa.RecordBatch, columns: Mapping[str, TargetColumn], key: Sequence[str], table: str
) -> None:
    """Refuse rows that the target cannot hold. `columns` are those of the target, if they are known."""
    for field, values in zip(batch.schema, batch.columns, strict=True):
        column = columns.get(field.name)
        if values.null_count and (field.name in key or (column is not None and column.is_required)):
            what = "a key column" if field.name in key else "a column that cannot be null"
            raise _refusal(
                f"{what} has no value", table, field.name, f"{values.null_count} nulls", "a value in each row"
            )
        if _is_text(field.type):
            _check_text(values, column, table, field.name)
        elif is_type.is_timestamp(field.type) or is_type.is_date32(field.type):
            _check_time(values, table, field.name)
        elif is_type.is_nested(field.type):
            _check_json(values, table, field.name)


def _check_text(values: pa.Array, column: TargetColumn | None, table: str, name: str) -> None:
    if pc.any(pc.match_substring(values, "\0")).as_py():
        raise _refusal("a text has a null character", table, name, "U+0000", "texts without it")
    if column is not None and column.chars_max is not None:
        longest = pc.max(pc.utf8_length(values)).as_py() or 0
        if longest > column.chars_max:
            raise _refusal("a text is too long", table, name, f"{longest} characters", column.shown)


def _check_json(values: pa.Array, table: str, name: str) -> None:
    try:
        texts = _json_texts(values)
    except (ValueError, KeyError) as cause:
        raise _refusal("a value cannot be written as JSON", table, name, str(cause), "JSON") from cause
    if any(text is not None and _NULL_CHARACTER.search(text) for text in texts):
        raise _refusal("a text has a null character", table, name, "U+0000", "texts without it")


def _check_time(values: pa.Array, table: str, name: str) -> None:
    if is_type.is_date32(values.type):
        first, last = _FIRST_DAY, _LAST_DAY + 1
        numbers = values.view(pa.int32())
    else:
        a_day = 86_400 * _PER_SECOND[values.type.unit]
        first, last = _FIRST_DAY * a_day, (_LAST_DAY + 1) * a_day
        numbers = values.view(pa.int64())
    found = pc.min_max(numbers)
    if found["min"].is_valid and not (first <= found["min"].as_py() and found["max"].as_py() < last):
        raise _refusal("a time is out of range", table, name, "a year outside", "the years 1 to 9999")


def _refusal(what: str, table: str, column: str, found: str, expected: str) -> InvalidInputError:
    return InvalidInputError(
        what, object_name=f"table {table}, column {column}", found=found, expected=expected
    )


def target_names(schema: pa.Schema, kind: RowKind) -> list[str]:
    """The columns of a stream that go into the table."""
    return [name for name in schema.names if kind is not RowKind.CHANGES or name != CHANGE]


def encode_copy(rows: pa.Table, kind: RowKind, first: int) -> tuple[bytes, int]:
    """Rows as CSV for COPY, and how many there are; with the number of each, and what it does to its key.

    The rows before an update say nothing that the table does not know, and are left out.

    >>> encode_copy(pa.table({"n": [1, None], "text": ["", None]}), RowKind.APPEND, 10)
    (b'1,"",10\\n,,11\\n', 2)
    """
    if kind is RowKind.CHANGES:
        rows = rows.filter(pc.not_equal(rows[CHANGE], BEFORE))
    names = target_names(rows.schema, kind)
    columns = [_encode_column(rows[name]) for name in names]
    columns.append(pa.array(range(first, first + len(rows)), pa.int64()))
    names.append(ORDER)
    if kind is RowKind.CHANGES:
        columns.append(rows[CHANGE])
        names.append(CHANGE)
    sink = io.BytesIO()
    csv.write_csv(pa.table(columns, names=names), sink, csv.WriteOptions(include_header=False))
    return sink.getvalue(), len(rows)


def _encode_column(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values in a form that CSV has and PostgreSQL reads."""
    if is_type.is_nested(values.type):
        texts = [text for chunk in values.chunks for text in _json_texts(chunk)]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if is_type.is_binary(values.type) or is_type.is_large_binary(values.type):
        found = [None if value is None else f"\\x{value.hex()}" for value in values.to_pylist()]
        return pa.chunked_array([pa.array(found, pa.string())])
    if is_type.is_dictionary(values.type):
        return values.cast(values.type.value_type)
    return values


def _json_texts(values: pa.Array) -> list[str | None]:
    """Nested values as JSON: maps as objects, bytes in hexadecimal."""
    return [
        None if value is None else json.dumps(value, default=_plain, allow_nan=False)
        for value in values.to_pylist(maps_as_pydicts="strict")
    ]


def _plain(value: Any) -> Any:
    for kind, encode in _PLAIN.items():
        if isinstance(value, kind):
            return encode(value)
    return str(value)


_PLAIN: dict[type, Callable[[Any], Any]] = {
    bytes: bytes.hex,
    Decimal: str,
    datetime: datetime.isoformat,
    date: date.isoformat,
}


def _is_text(given: pa.DataType) -> bool:
    return bool(is_type.is_string(given) or is_type.is_large_string(given))
