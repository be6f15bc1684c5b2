"""Partition values as folder names, and back, without loss.

The committer reads the partition values of a file from its path; readers take them from the manifest.
So every value has exactly one name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa

from lakestate.errors import CorruptionError, InvalidInputError
from lakestate.sinks.iceberg.transforms import PERIODS
from lakestate.sinks.partitioning.paths import DEFAULT_PARTITION
from lakestate.storage.object_path import PART_BYTES_MAX


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of a table's partition spec.

    >>> country = PartitionField("country", "country", "identity", pa.large_string())
    >>> country.folder("a/b"), country.folder(None), country.value("country=a%2Fb")
    ('country=a%2Fb', 'country=__HIVE_DEFAULT_PARTITION__', 'a/b')
    """

    name: str
    column: str | None
    """The source column; dots lead into structs. None if the table dropped it: all values are null."""
    transform: str
    source: pa.DataType

    def folder(self, value: Any) -> str:
        """The folder of a value, given as `distinct_values` gives it."""
        self._check_digits(value)
        shown = DEFAULT_PARTITION if value is None else quote(self._codec[0](value), safe="")
        if value is not None and shown == DEFAULT_PARTITION:
            shown = f"%5F{shown[1:]}"
        folder = f"{quote(self.name, safe='')}={shown}"
        if len(folder) > PART_BYTES_MAX:
            raise InvalidInputError(
                "a partition value is too long for a path",
                object_name=self.name,
                found=f"{folder[:80]}…",
                expected=f"at most {PART_BYTES_MAX} bytes",
                action=f"partition by truncate(N, {self.column}) or bucket(N, {self.column}) instead",
            )
        return folder

    def value(self, folder: str) -> Any:
        """The value of a folder, as manifests hold it."""
        name, _, shown = folder.partition("=")
        if unquote(name) != self.name:
            raise CorruptionError(
                "a file is not in the folder of its partition", found=folder, expected=self.name
            )
        return None if shown == DEFAULT_PARTITION else self._codec[1](unquote(shown))

    def _check_digits(self, value: Any) -> None:
        """Refuse a value that truncating made too long for the column: no manifest could hold it."""
        if isinstance(value, Decimal) and len(value.as_tuple().digits) > self.source.precision:
            raise InvalidInputError(
                "a truncated partition value has more digits than its column",
                object_name=self.column,
                found=f"{value:f} by {self.transform}",
                expected=self.source,
                action="widen the column of the table, or change its partition spec",
            )

    @property
    def _codec(self) -> tuple[Callable[[Any], str], Callable[[str], Any]]:
        if self.transform in PERIODS:
            return _moment_codec(PERIODS[self.transform])
        if self.transform.startswith("bucket"):
            return str, int
        return _text_codec(self.source)


def distinct_values(values: pa.Array) -> tuple[pa.Array, list[Any]]:
    """For each row the number of its value, and the values that occur, as plain numbers or text."""
    stored = values.storage if isinstance(values, pa.ExtensionArray) else values
    if pa.types.is_date32(stored.type):
        stored = stored.cast(pa.int32())
    elif pa.types.is_time(stored.type) or pa.types.is_timestamp(stored.type):
        stored = stored.cast(pa.int64())
    encoded = stored.dictionary_encode(null_encoding="encode")
    return encoded.indices, encoded.dictionary.to_pylist()


def _text_codec(source: pa.DataType) -> tuple[Callable[[Any], str], Callable[[str], Any]]:
    kinds = pa.types
    if kinds.is_boolean(source):
        return lambda value: "true" if value else "false", lambda text: text == "true"
    if kinds.is_integer(source) or kinds.is_time(source):
        return str, int
    if kinds.is_floating(source):
        return _float_text, float
    if kinds.is_decimal(source):
        return lambda value: format(value, "f"), Decimal
    if kinds.is_date(source):
        return _moment_codec("D")
    if kinds.is_timestamp(source):
        return _moment_codec(source.unit)
    if kinds.is_string(source) or kinds.is_large_string(source):
        return str, str
    return lambda value: bytes(value).hex(), bytes.fromhex


def _float_text(value: float) -> str:
    return "nan" if math.isnan(value) else repr(value)


def _moment_codec(unit: str) -> tuple[Callable[[int], str], Callable[[str], int]]:
    """Numbers of periods since 1970, written as dates and times."""

    def number_text(number: int) -> str:
        return str(np.array([number]).view(f"datetime64[{unit}]")[0])

    def parse_text(text: str) -> int:
        return int(np.array([text], f"datetime64[{unit}]").astype(np.int64)[0])

    return number_text, parse_text
