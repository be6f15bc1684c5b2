"""Types of Arrow and PostgreSQL: what a stream's column becomes, and what it may be written to. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as is_type

from lakestate.errors import InvalidInputError

_INTEGER_BYTES = {"int2": 2, "int4": 4, "int8": 8}
_INTEGER_NAMES = {2: "smallint", 4: "integer", 8: "bigint"}
_TEXTS = ("text", "varchar")


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of the target table."""

    name: str
    type_name: str
    """As PostgreSQL stores it: int4, varchar, timestamptz."""
    shown: str
    """As people write it: integer, character varying(10)."""
    modifier: int = -1
    is_required: bool = False
    has_default: bool = False
    is_computed: bool = False
    """Its values are always made by PostgreSQL."""

    @property
    def chars_max(self) -> int | None:
        """The most characters that a text may have."""
        return self.modifier - 4 if self.type_name == "varchar" and self.modifier > 4 else None


def column_type(given: pa.DataType, name: str) -> str:
    """The type of a new column that holds every value of a type of Arrow.

    >>> column_type(pa.timestamp("us", "UTC"), "ts"), column_type(pa.list_(pa.int8()), "tags")
    ('timestamp with time zone', 'jsonb')
    """
    if is_type.is_decimal(given):
        return f"numeric({given.precision},{given.scale})"
    if is_type.is_integer(given):
        needed = given.bit_width // 8 * (2 if is_type.is_unsigned_integer(given) else 1)
        return "numeric(20,0)" if needed > 8 else _INTEGER_NAMES[max(2, needed)]
    if is_type.is_timestamp(given) and given.unit != "ns":
        return "timestamp with time zone" if given.tz else "timestamp without time zone"
    for matches, found in _PLAIN:
        if matches(given):
            return found
    raise InvalidInputError(
        "PostgreSQL has no column for values of this type",
        object_name=f"column {name}",
        found=str(given),
        action="cast the column first, or leave it out",
    )


def _is_json(given: pa.DataType) -> bool:
    return bool(is_type.is_nested(given)) and _has_json_form(given)


def _has_json_form(given: pa.DataType) -> bool:
    """Whether a type can be part of JSON, where the keys of an object are texts."""
    if is_type.is_union(given):
        return False
    if is_type.is_map(given) and not any(matches(given.key_type) for matches in _JSON_KEYS):
        return False
    return all(_has_json_form(given.field(number).type) for number in range(given.num_fields))


def _is_text(given: pa.DataType) -> bool:
    return bool(is_type.is_string(given) or is_type.is_large_string(given))


def _is_binary(given: pa.DataType) -> bool:
    return bool(is_type.is_binary(given) or is_type.is_large_binary(given))


def _is_exact_time(given: pa.DataType) -> bool:
    return bool(is_type.is_time(given) and given.unit != "ns")


_JSON_KEYS = (_is_text, is_type.is_integer, is_type.is_boolean, is_type.is_float32, is_type.is_float64)
"""Types of map keys whose values have one text each."""
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""Digits of a second that a unit of time has."""
_PLAIN = (
    (is_type.is_boolean, "boolean"),
    (is_type.is_float32, "real"),
    (is_type.is_float64, "double precision"),
    (_is_text, "text"),
    (_is_binary, "bytea"),
    (is_type.is_date32, "date"),
    (_is_exact_time, "time without time zone"),
    (_is_json, "jsonb"),
)


def holds(column: TargetColumn, given: pa.DataType) -> bool:
    """Whether a column holds every value of a type, unless rows that it cannot hold are refused by the sink.

    >>> holds(TargetColumn("n", "int4", "integer"), pa.int64())
    False
    """
    found = column.type_name
    if is_type.is_integer(given):
        return _holds_integer(column, given)
    if is_type.is_decimal(given):
        return found == "numeric" and _holds_decimal(column.modifier, given.precision, given.scale)
    if is_type.is_timestamp(given):
        wanted = "timestamptz" if given.tz else "timestamp"
        return found == wanted and _holds_digits(column.modifier, given.unit)
    if is_type.is_float32(given):
        return found in ("float4", "float8")
    if _is_text(given):
        return found in _TEXTS
    if _is_json(given):
        return found in ("jsonb", "json")
    accepted = {"boolean": "bool", "double precision": "float8", "bytea": "bytea", "date": "date"}
    if is_type.is_time(given):
        return found == "time" and _holds_digits(column.modifier, given.unit)
    return any(matches(given) and accepted.get(wanted) == found for matches, wanted in _PLAIN)


def _holds_digits(modifier: int, unit: str) -> bool:
    """Whether a column of times keeps the digits of a unit. Without a modifier it has 6."""
    return (6 if modifier < 0 else modifier) >= _DIGITS[unit]


def _holds_integer(column: TargetColumn, given: pa.DataType) -> bool:
    needed = given.bit_width // 8 * (2 if is_type.is_unsigned_integer(given) else 1)
    if column.type_name == "numeric":
        return _holds_decimal(column.modifier, {2: 5, 4: 10, 8: 19}.get(max(2, needed), 20), 0)
    return bool(needed <= _INTEGER_BYTES.get(column.type_name, 0))


def _holds_decimal(modifier: int, precision: int, scale: int) -> bool:
    if modifier < 4:
        return True
    there, there_scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
    return there_scale >= scale and there - there_scale >= precision - scale
