"""Python values as Arrow arrays of a given type, exactly or not at all.

Arrow itself truncates fractions, reads text as bytes and drops unknown fields of a struct. State must
not change that way: a value that would not read back as it was given is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pyarrow as pa

from lakestate.errors import InvalidInputError


def exact_array(values: Sequence[object], type_: pa.DataType, name: str) -> pa.Array:
    """An array of the type, or InvalidInputError naming the column and the value that does not fit.

    >>> exact_array([1, None], pa.int32(), "n").to_pylist()
    [1, None]
    >>> exact_array([1.5], pa.int32(), "n")
    Traceback (most recent call last):
    lakestate.errors.InvalidInputError: a value does not fit its column: n; found 1.5; expected int32; ...
    """
    given = [value.as_py() if isinstance(value, pa.Scalar) else value for value in values]
    try:
        array = pa.array(given, type=type_)
        kept = array.to_pylist()
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:
        raise _misfit(name, _first_misfit(given, type_), type_) from cause
    if kept != given:
        for value, stored in zip(given, kept, strict=True):
            if not _same(value, stored):
                raise _misfit(name, value, type_)
    return array


def _same(given: object, kept: object) -> bool:
    """True if nothing but the last digits of a float was lost."""
    if isinstance(given, float) and isinstance(kept, float):
        return _same_float(given, kept)
    if isinstance(kept, dict):
        return (
            isinstance(given, Mapping)
            and given.keys() <= kept.keys()
            and all(_same(given.get(name), value) for name, value in kept.items())
        )
    if isinstance(kept, list | tuple):
        items = list(given.items()) if isinstance(given, Mapping) else given
        return (
            isinstance(items, list | tuple)
            and len(items) == len(kept)
            and all(_same(one, other) for one, other in zip(items, kept, strict=True))
        )
    return bool(given == kept)


def _same_float(given: float, kept: float) -> bool:
    if math.isnan(given) or math.isnan(kept):
        return math.isnan(given) and math.isnan(kept)
    # A 32-bit column keeps about seven digits. A finite number that becomes infinity is lost.
    return given == kept or math.isclose(given, kept, rel_tol=1e-6, abs_tol=1e-37)


def _first_misfit(values: Sequence[object], type_: pa.DataType) -> object:
    for value in values:
        try:
            pa.array([value], type=type_).to_pylist()
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return value
    return values


def _misfit(name: str, value: object, type_: pa.DataType) -> InvalidInputError:
    return InvalidInputError(
        "a value does not fit its column",
        object_name=name,
        found=f"{value!r:.200}",
        expected=str(type_),
        action="give a value of that type",
    )
