"""Stored keys and values of a `GlobalKeyedTable` as Arrow columns, without the types that declared them.

The stored declaration has the type of keys and of values as text, and MessagePack describes itself. A
plain type becomes an Arrow column of that type; everything else becomes JSON text. Nothing is evaluated.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any

import msgspec
import pyarrow as pa

from lakestate.codec.untrusted import UNDECODABLE
from lakestate.errors import RESTORE_OR_GO_BACK, CorruptionError

_NUMBERS = (-(2**63), 2**63 - 1)
_BIG = pa.decimal128(20, 0)
"""MessagePack has integers up to 2^64 - 1, which no Arrow type holds together with negative ones."""

_TYPES: dict[str, pa.DataType] = {
    "str": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "bytes": pa.binary(),
    "bytearray": pa.binary(),
}
_AS_TEXT = ("datetime", "date", "time", "timedelta", "UUID", "Decimal")
"""Types whose values are stored as text, or read as an object with a text form."""


def plain_column(items: Sequence[bytes | None], type_text: str, object_name: str) -> pa.Array:
    """MessagePack items of one declared type as an Arrow array.

    >>> plain_column([msgspec.msgpack.encode(7), None], "int | None", "ages").to_pylist()
    [7, None]
    >>> plain_column([msgspec.msgpack.encode({"max": (1, 2)})], "dict[str, tuple[int, int]]", "x").to_pylist()
    ['{"max":[1,2]}']
    """
    plain = type_text.removesuffix(" | None")
    try:
        values = [None if item is None else msgspec.msgpack.decode(item) for item in items]
        if plain in _TYPES:
            return _typed_array(values, _TYPES[plain])
        show: Callable[[Any], str] = _json_text if is_shown_as_json(type_text) else _text
        return pa.array([None if value is None else show(value) for value in values], pa.string())
    except (*UNDECODABLE, pa.ArrowException, OverflowError) as cause:
        raise CorruptionError(
            "a stored entry cannot be decoded",
            object_name=object_name,
            found=str(cause)[:200],
            expected=type_text,
            action=RESTORE_OR_GO_BACK,
        ) from cause


def is_shown_as_json(type_text: str) -> bool:
    """Whether values of a declared type become JSON text.

    >>> is_shown_as_json("tuple[str, int]"), is_shown_as_json("str | None"), is_shown_as_json("date")
    (True, False, False)
    """
    plain = type_text.removesuffix(" | None")
    return plain not in _TYPES and plain not in _AS_TEXT


def _typed_array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_integer(type_) and any(
        value is not None and not _NUMBERS[0] <= value <= _NUMBERS[1] for value in values
    ):
        return pa.array(values, _BIG)
    if pa.types.is_floating(type_):
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, type_)


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime | date) else str(value)


def _json_text(value: Any) -> str:
    return msgspec.json.encode(_jsonable(value)).decode()


def _jsonable(value: Any) -> Any:
    """What JSON can hold: bytes as Base64, and maps whose keys are not text as lists of pairs."""
    match value:
        case dict() if all(isinstance(key, str) for key in value):
            return {key: _jsonable(item) for key, item in value.items()}
        case dict():
            return [[_jsonable(key), _jsonable(item)] for key, item in value.items()]
        case list() | tuple():
            return [_jsonable(item) for item in value]
        case bytes():
            return base64.b64encode(value).decode()
        case float() if not math.isfinite(value):
            return str(value)
        case msgspec.msgpack.Ext():
            return [value.code, base64.b64encode(bytes(value.data)).decode()]
    return value
