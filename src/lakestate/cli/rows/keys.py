"""Names of tables and keys as people type them. Whatever a table shows as a key can be typed again."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.inspection import EpochState, StateTable
from lakestate.protocol.names import did_you_mean
from lakestate.tables.global_keyed.plain_values import is_shown_as_json


def find_table_name(named: str, *epochs: EpochState) -> tuple[str, str]:
    """Operator and table of `operator.table`. Both may have dots: the tables of the epochs tell."""
    known = {(info.operator, info.table) for epoch in epochs for info in epoch.tables()}
    found = sorted(pair for pair in known if ".".join(pair) == named)
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidInputError(
            "several tables have this name",
            object_name=named,
            found=", ".join(f"table {table} of operator {operator}" for operator, table in found),
            action="ask for one of them with lakestate sql or lakestate state",
        )
    operator, dot, table = named.rpartition(".")
    if not dot or not operator or not table:
        likely = sorted(".".join(pair) for pair in known if pair[1] == named)
        raise InvalidInputError(
            "not the name of a table",
            found=repr(named),
            expected="operator.table",
            action=f"did you mean {' or '.join(likely)}?" if likely else None,
        )
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
        if len(columns) == 1 and columns[0] not in found and _is_json_column(columns[0], table):
            found = {columns[0]: found}
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
            action=did_you_mean(unknown[0], columns) or "write a key with commas or = as a JSON object",
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
        if pa.types.is_binary(wanted) or pa.types.is_large_binary(wanted):
            return pa.array([None if text is None else bytes.fromhex(text) for text in texts], wanted)
        if _is_json_column(name, table):
            texts = [None if text is None else _compact_json(text) for text in texts]
        return pa.array(texts, pa.string()).cast(wanted)
    except (pa.ArrowException, ValueError) as cause:
        raise InvalidInputError(
            f"not a value of column {name}",
            found=", ".join(map(repr, texts)),
            expected=_type_of(name, table),
            action=_how_to_write(wanted),
        ) from cause


def _type_of(name: str, table: StateTable) -> str:
    return next(column.type for column in table.declaration.key_columns if column.name == name)


def _is_json_column(name: str, table: StateTable) -> bool:
    """Whether the values of a column, which have parts, are read as JSON text."""
    is_text, declared = pa.types.is_string(table.schema.field(name).type), _type_of(name, table)
    return is_text and declared != "string" and is_shown_as_json(declared)


def _compact_json(text: str) -> str:
    """JSON as it is stored: spaces and escapes that people or programs put into it do not matter."""
    return json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))


def _how_to_write(wanted: pa.DataType) -> str | None:
    if pa.types.is_timestamp(wanted):
        like = "2026-01-31T12:00:00"
        return f"write it with its offset, such as {like}Z" if wanted.tz else f"write it as in {like}"
    if pa.types.is_binary(wanted) or pa.types.is_large_binary(wanted):
        return "write the bytes as they are shown, in hexadecimal, such as 616263"
    return "write true or false" if pa.types.is_boolean(wanted) else None
