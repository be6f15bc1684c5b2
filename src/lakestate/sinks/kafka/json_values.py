"""Rows as JSON objects, a column at a time.

Numbers, flags and texts, which most columns are, never become Python objects. Other types are encoded value
by value, as `JsonLinesSink` does it: times in RFC 3339, binary values in base64, decimals as numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError

_ENCODER = msgspec.json.Encoder(decimal_format="number")
_ESCAPED = r'["\\\x00-\x1f]'
"""What JSON does not allow in a text as it is."""
_CONTROL = r"[\x00-\x1f]"
_TEXTS = (pa.types.is_string, pa.types.is_large_string)
_INTEGERS_AND_FLAGS = (pa.types.is_integer, pa.types.is_boolean)


def json_objects(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.Array:
    """The JSON object of each row, as text.

    >>> rows = pa.record_batch({"n": [1, None], "who": ['a"b', "c"]})
    >>> json_objects(rows, ["n", "who"]).to_pylist()
    ['{"n":1,"who":"a\\\\"b"}', '{"n":null,"who":"c"}']
    """
    pieces: list[pa.Array | str] = []
    for number, name in enumerate(columns):
        pieces.append(f"{'{' if number == 0 else ','}{_ENCODER.encode(name).decode()}:")
        pieces.append(_json_texts(batch.column(name)))
    return pc.binary_join_element_wise(*pieces, "}", "")


def _json_texts(column: pa.Array) -> pa.Array:
    """Each value of a column as JSON."""
    kind = column.type
    if any(matches(kind) for matches in _INTEGERS_AND_FLAGS):
        texts = column.cast(pa.string())
    elif pa.types.is_float32(kind) or pa.types.is_float64(kind):
        # JSON has no numbers that are not finite.
        texts = pc.if_else(pc.is_finite(column), column, pa.scalar(None, kind)).cast(pa.string())
    elif any(matches(kind) for matches in _TEXTS):
        texts = _quote(column.cast(pa.string()))
    else:
        texts = _encode_each(column)
    return pc.fill_null(texts, "null")


def _quote(column: pa.Array) -> pa.Array:
    quoted = pc.binary_join_element_wise('"', column, '"', "")
    if not _has_special(column):
        return quoted
    special = pc.fill_null(pc.match_substring_regex(column, _ESCAPED), fill_value=False)
    escaped = pc.replace_substring(pc.replace_substring(column, "\\", "\\\\"), '"', '\\"')
    quoted = pc.if_else(special, pc.binary_join_element_wise('"', escaped, '"', ""), quoted)
    rare = pc.fill_null(pc.match_substring_regex(column, _CONTROL), fill_value=False)
    if not pc.any(rare).as_py():
        return quoted
    return pc.replace_with_mask(quoted, rare, _encode_each(column.filter(rare)))


def _has_special(column: pa.Array) -> bool:
    """Whether any text needs escaping, or a text beside them in memory: a look at bytes, not at texts."""
    data = column.buffers()[2]
    if data is None:
        return False
    found = np.frombuffer(data, np.uint8)
    return bool(((found < ord(" ")) | (found == ord('"')) | (found == ord("\\"))).any())


def _encode_each(column: pa.Array) -> pa.Array:
    try:
        values = column.to_pylist(maps_as_pydicts="strict")
        texts = [None if value is None else _ENCODER.encode(value).decode() for value in values]
    except (ArithmeticError, ValueError, KeyError, TypeError) as cause:
        raise InvalidInputError(
            "a value cannot be written as JSON",
            found=f"{type(cause).__name__}: {cause}"[:200],
            expected="times of the years 1 to 9999, and each key of a map once, a text",
        ) from cause
    return pa.array(texts, pa.string())
