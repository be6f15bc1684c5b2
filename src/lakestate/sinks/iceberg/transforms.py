"""Partition transforms, for whole columns at once: identity, bucket, truncate and periods of time.

pyiceberg applies them value by value, or through a package that is not required. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError
from lakestate.sinks.iceberg.hashes import hash_bytes, hash_integers

PERIODS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
"""Transforms of time, with numpy's letter for the period."""

PARAMETER_MAX = 2**31 - 1
"""Iceberg has 32 bits for the number of buckets, and for a width."""

_DIGITS_MAX = 76
_SUFFIXES = {"identity": "", "truncate": "_trunc"}
_TERM = re.compile(r"(\w+)\(\s*(?:(\d+)\s*,\s*)?([^(),]+?)\s*\)")


@dataclass(frozen=True, slots=True)
class PartitionTerm:
    """One part of a partition spec, as users write it.

    >>> PartitionTerm.of("bucket(16, user)")
    PartitionTerm(transform='bucket', column='user', parameter=16)
    >>> PartitionTerm.of("country").name, PartitionTerm.of("day(ts)").name
    ('country', 'ts_day')
    """

    transform: str
    column: str
    parameter: int | None = None

    @classmethod
    def of(cls, text: str) -> PartitionTerm:
        """The term that a text means."""
        found = _TERM.fullmatch(text.strip())
        if found is None and "(" not in text and text.strip():
            return cls("identity", text.strip())
        if found is None or not _is_known(found[1], found[2]):
            raise InvalidInputError(
                "not a partition of an Iceberg table",
                found=repr(text),
                expected="a column, year(c), month(c), day(c), hour(c), bucket(N, c) or truncate(N, c)",
            )
        return cls(found[1], found[3], None if found[2] is None else int(found[2]))

    @property
    def name(self) -> str:
        """The name of the partition field, as Iceberg forms it."""
        return self.column.replace(".", "_") + _SUFFIXES.get(self.transform, f"_{self.transform}")

    @property
    def transform_text(self) -> str:
        """The transform as table metadata spells it."""
        return self.transform if self.parameter is None else f"{self.transform}[{self.parameter}]"


def apply_transform(column: pa.Array, transform: str) -> pa.Array:
    """The partition value of each row; `transform` is spelled as in table metadata.

    >>> apply_transform(pa.array(["abcde", None, "x"]), "truncate[2]").to_pylist()
    ['ab', None, 'x']
    """
    kind, _, rest = transform.partition("[")
    if kind == "identity":
        return column
    if kind == "void":
        return pa.nulls(len(column), pa.int32())
    if kind in PERIODS:
        return _like(column, _period_numbers(column, PERIODS[kind]))
    if kind in ("bucket", "truncate"):
        number = int(rest.rstrip("]"))
        return _bucket(column, number) if kind == "bucket" else _truncate(column, number)
    raise InvalidInputError(
        "a partition transform is not known", found=transform, action="change the table's partition spec"
    )


def _is_known(transform: str, parameter: str | None) -> bool:
    if transform in ("bucket", "truncate"):
        return parameter is not None and 0 < int(parameter) <= PARAMETER_MAX
    return transform in PERIODS and parameter is None


def _like(column: pa.Array, values: npt.NDArray[Any]) -> pa.Array:
    """Numbers for the rows of a column; null where the column is."""
    return pa.array(values.astype(np.int32), mask=_nulls(column))


def _nulls(column: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)


def _integers(column: pa.Array) -> npt.NDArray[np.int64]:
    """Dates, times and integers as 64-bit numbers; 0 for nulls."""
    narrow = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
    numbers = column.cast(narrow).cast(pa.int64()).fill_null(0)
    return np.ascontiguousarray(numbers.to_numpy(zero_copy_only=False), dtype=np.int64)


def _period_numbers(column: pa.Array, period: str) -> npt.NDArray[np.int64]:
    unit = "D" if pa.types.is_date32(column.type) else column.type.unit
    moments = _integers(column).view(f"datetime64[{unit}]")
    return moments.astype(f"datetime64[{period}]").astype(np.int64)


def _bucket(column: pa.Array, count: int) -> pa.Array:
    if pa.types.is_decimal(column.type):
        distinct = column.dictionary_encode()
        spelled = pa.array([_unscaled_bytes(value) for value in distinct.dictionary.to_pylist()], pa.binary())
        hashes = hash_bytes(spelled.take(distinct.indices))
    elif isinstance(column, pa.ExtensionArray):
        hashes = hash_bytes(column.storage)
    elif _is_bytes(column.type):
        hashes = hash_bytes(column)
    else:
        hashes = hash_integers(_integers(column))
    return _like(column, (hashes & np.uint32(0x7FFFFFFF)) % np.uint32(count))


def _truncate(column: pa.Array, width: int) -> pa.Array:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return pc.utf8_slice_codeunits(column, 0, width)
    if _is_bytes(column.type):
        return pc.binary_slice(column, 0, width)
    if pa.types.is_decimal(column.type):
        distinct = column.dictionary_encode()
        values = [_truncate_decimal(value, width) for value in distinct.dictionary.to_pylist()]
        # Near the least value one more digit is needed; `PartitionField.folder` refuses too many.
        return pa.array(values, pa.decimal256(_DIGITS_MAX, column.type.scale)).take(distinct.indices)
    numbers = _integers(column)
    # Near the least number this wraps around, as in every other writer.
    return pa.array(numbers - numbers % width, mask=_nulls(column)).cast(column.type, safe=False)


def _is_bytes(given: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_string(given)
        or kinds.is_large_string(given)
        or kinds.is_binary(given)
        or kinds.is_large_binary(given)
        or kinds.is_fixed_size_binary(given)
    )


def _unscaled_value(value: Decimal) -> int:
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)))
    return -number if sign else number


def _unscaled_bytes(value: Decimal) -> bytes:
    """The shortest two's complement of the number."""
    number = _unscaled_value(value)
    bits = (number if number >= 0 else ~number).bit_length() + 1
    return number.to_bytes((bits + 7) // 8, "big", signed=True)


def _truncate_decimal(value: Decimal, width: int) -> Decimal:
    number = _unscaled_value(value)
    number -= number % width
    digits = tuple(map(int, str(abs(number))))
    # Without arithmetic, which would round to the precision of the context.
    return Decimal((int(number < 0), digits, int(value.as_tuple().exponent)))
