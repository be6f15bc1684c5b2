"""Partition values as directory names, escaped exactly as Spark and Hive do. Pure."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from lakestate.errors import InvalidInputError

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The name for null. Spark uses it for the empty string too."""

_YEAR_DIGITS = 4
"""A year with more digits is written with its sign, as Spark does."""

# Spark's ExternalCatalogUtils.charToEscape; NUL is added, because no file system accepts it.
_ESCAPED = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]")


def escape_path_name(name: str) -> str:
    """A name that cannot be mistaken for a path or for another partition.

    >>> escape_path_name("a/b=c: 100%")
    'a%2Fb%3Dc%3A 100%25'
    """
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", name)


def partition_name(column: str, value: Any) -> str:
    """The directory of a value.

    >>> partition_name("country", "DE"), partition_name("country", None)
    ('country=DE', 'country=__HIVE_DEFAULT_PARTITION__')
    """
    shown = _value_text(value)
    return f"{escape_path_name(column)}={escape_path_name(shown) if shown else DEFAULT_PARTITION}"


def check_partition_type(column: str, data_type: pa.DataType) -> None:
    """Refuse columns whose values have no unique spelling as a name."""
    plain = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
    known = (
        pa.types.is_integer(plain)
        or pa.types.is_boolean(plain)
        or pa.types.is_string(plain)
        or pa.types.is_large_string(plain)
        or pa.types.is_string_view(plain)
        or pa.types.is_date(plain)
        or pa.types.is_decimal(plain)
        or pa.types.is_timestamp(plain)
        or pa.types.is_null(plain)
    )
    if not known:
        raise InvalidInputError(
            "files cannot be partitioned by a column of this type",
            object_name=column,
            found=data_type,
            expected="text, integer, boolean, decimal, date or timestamp",
            action="add a column with the value as text",
        )


def _value_text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case datetime():
            return _without_zeros(value.replace(tzinfo=None).isoformat(sep=" "))
        case np.datetime64():
            text = _without_zeros(str(value).replace("T", " "))
            year = text.partition("-")[0]
            return f"+{text}" if len(year) > _YEAR_DIGITS else text
        case _:
            return format(value, "f") if hasattr(value, "as_tuple") else str(value)


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
