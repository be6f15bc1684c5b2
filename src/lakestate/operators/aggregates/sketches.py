"""Estimates of bounded size: approx_count_distinct and approx_quantiles, by Apache DataSketches.

A sketch is stored as the bytes that its library documents. They are parsed, never unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import RESTORE_OR_GO_BACK, CorruptionError, InvalidInputError, MissingExtraError
from lakestate.operators.aggregates.aggregate import (
    Accumulator,
    Aggregate,
    BoundAggregate,
    Merge,
    refuse_type,
)
from lakestate.operators.aggregates.plain import has_order, is_number

_BAD_BYTES = (ValueError, IndexError, RuntimeError, MemoryError, TypeError)


class BoundSketch(BoundAggregate):
    """One sketch for each group, as bytes. Null if no value counted."""

    accumulators = (Accumulator("sketch", "binary", Merge.OWN),)

    def sketch(self, values: pa.Array) -> Any:
        """A sketch of values, none of which is null."""
        raise NotImplementedError

    def merge_sketches(self, sketches: Sequence[bytes]) -> bytes:
        """One sketch for several."""
        raise NotImplementedError

    def estimate(self, sketch: bytes) -> Any:
        """The result of a sketch."""
        raise NotImplementedError

    def create(self, arguments: Sequence[pa.Array]) -> list[pa.Array]:
        """A sketch for each row."""
        return self.create_groups(arguments, np.arange(len(arguments[0]) + 1))

    def create_groups(self, arguments: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        """A sketch for each group."""
        (values,) = arguments

        def sketch_rows(start: int, stop: int) -> bytes | None:
            rows = values.slice(start, stop - start).drop_null()
            return self.sketch(rows) if len(rows) else None

        return [_for_groups(sketch_rows, offsets)]

    def merge(self, columns: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        """One sketch for each group; one that is alone in its group stays as it is."""
        (sketches,) = columns

        def merge_rows(start: int, stop: int) -> bytes | None:
            found = [each for each in sketches.slice(start, stop - start).to_pylist() if each is not None]
            return self.merge_sketches(found) if len(found) > 1 else (found or [None])[0]

        return [_for_groups(merge_rows, offsets)]


@dataclass(frozen=True)
class BoundApproxCountDistinct(BoundSketch):
    """A HyperLogLog sketch of 2 ** precision registers."""

    precision: int
    output = "bigint"
    counts_duplicates = False

    @property
    def function(self) -> str:  # type: ignore[override]
        """With its precision: sketches of different precision are not mixed."""
        return f"approx_count_distinct({self.precision})"

    def sketch(self, values: pa.Array) -> bytes:
        """Values are hashed by the library: as numbers where they are numbers, and otherwise as text."""
        sketch = _library().hll_sketch(self.precision)
        for value in _hashable(values.unique()):
            sketch.update(value)
        return bytes(sketch.serialize_compact())

    def merge_sketches(self, sketches: Sequence[bytes]) -> bytes:
        """The union."""
        union = _library().hll_union(self.precision)
        for data in sketches:
            union.update(self._parse(data))
        return bytes(union.get_result().serialize_compact())

    def estimate(self, sketch: bytes) -> int:
        """The number of different values."""
        return round(float(self._parse(sketch).get_estimate()))

    def result(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The number of different values, 0 if there are none."""
        found = [0 if each is None else self.estimate(each) for each in columns[0].to_pylist()]
        return pa.array(found, pa.int64())

    def _parse(self, data: bytes) -> Any:
        sketch = _parse(_library().hll_sketch.deserialize, data, "HyperLogLog")
        if sketch.lg_config_k != self.precision:
            raise _corrupt("HyperLogLog", f"precision {sketch.lg_config_k}", f"precision {self.precision}")
        return sketch


@dataclass(frozen=True)
class BoundApproxQuantiles(BoundSketch):
    """A KLL sketch of doubles."""

    ranks: tuple[float, ...]
    k: int
    output = "array<double>"

    @property
    def function(self) -> str:  # type: ignore[override]
        """Without the ranks, which the sketch does not depend on."""
        return f"approx_quantiles({self.k})"

    def sketch(self, values: pa.Array) -> bytes:
        """Values become doubles. NaN is ignored."""
        sketch = _library().kll_doubles_sketch(self.k)
        # The library refuses arrays that cannot be written to, as Arrow's are.
        sketch.update(np.array(pc.cast(values, pa.float64(), safe=False)))
        return bytes(sketch.serialize())

    def merge_sketches(self, sketches: Sequence[bytes]) -> bytes:
        """All in one."""
        merged = _library().kll_doubles_sketch(self.k)
        for data in sketches:
            merged.merge(self._parse(data))
        return bytes(merged.serialize())

    def estimate(self, sketch: bytes) -> list[float] | None:
        """The quantiles, null if all values were NaN."""
        found = self._parse(sketch)
        if found.is_empty():
            return None
        ends: dict[float, float] = {0: found.get_min_value(), 1: found.get_max_value()}
        quantiles = found.get_quantiles(list(self.ranks), True)
        return [ends.get(rank, value) for rank, value in zip(self.ranks, quantiles, strict=True)]

    def result(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The quantiles of each group, null if no value counted."""
        found = [None if each is None else self.estimate(each) for each in columns[0].to_pylist()]
        return pa.array(found, pa.list_(pa.field("element", pa.float64())))

    def _parse(self, data: bytes) -> Any:
        sketch = _parse(_library().kll_doubles_sketch.deserialize, data, "KLL")
        if sketch.k != self.k:
            raise _corrupt("KLL", f"k {sketch.k}", f"k {self.k}")
        return sketch


class ApproxCountDistinct(Aggregate):
    """See `approx_count_distinct`."""

    function = "approx_count_distinct"

    def __init__(self, argument: str, *, where: str | None, precision: int) -> None:
        super().__init__(argument, where=where)
        self._precision = _require_range("precision", precision, 4, 21, self)
        _library()

    def bind(self, types: Sequence[str], where: str, *, retracts: bool = False) -> BoundAggregate:
        """Takes plain types."""
        if not has_order(types[0]):
            raise refuse_type(where, self, types[0], "a plain type")
        return BoundApproxCountDistinct(self._precision)


class ApproxQuantiles(Aggregate):
    """See `approx_quantiles`."""

    function = "approx_quantiles"

    def __init__(self, argument: str, ranks: Sequence[float], *, where: str | None, k: int) -> None:
        super().__init__(argument, where=where)
        self._k = _require_range("k", k, 8, 65535, self)
        self._ranks = tuple(ranks)
        if not self._ranks or not all(
            isinstance(rank, int | float) and 0 <= rank <= 1 for rank in self._ranks
        ):
            raise InvalidInputError(
                "quantiles are given as ranks",
                object_name=f"{self}",
                found=repr(ranks),
                expected="numbers from 0 to 1, such as [0.5, 0.99]",
            )
        _library()

    def bind(self, types: Sequence[str], where: str, *, retracts: bool = False) -> BoundAggregate:
        """Takes numbers."""
        if not is_number(types[0]):
            raise refuse_type(where, self, types[0], "a number")
        return BoundApproxQuantiles(self._ranks, self._k)


def approx_count_distinct(argument: str, *, precision: int = 12, where: str | None = None) -> Aggregate:
    """About how many different values there are that are not null, in at most 2 ** `precision` bytes.

    The standard error is 1.04 / sqrt(2 ** precision): 1.6 % by default. Needs `lakestate[sketches]`.

    >>> approx_count_distinct("bidder", where="price > 100")
    approx_count_distinct(bidder, where='price > 100')
    """
    return ApproxCountDistinct(argument, where=where, precision=precision)


def approx_quantiles(
    argument: str, ranks: Sequence[float], *, k: int = 200, where: str | None = None
) -> Aggregate:
    """About which values lie at these ranks, as a list of doubles. Null and NaN are ignored.

    With 99 % confidence, the rank of what is returned is wrong by at most 1.33 % for k = 200; the least and
    the greatest value, at ranks 0 and 1, are exact. Needs `lakestate[sketches]`.
    """
    return ApproxQuantiles(argument, ranks, where=where, k=k)


def _require_range(name: str, value: int, least: int, greatest: int, aggregate: Aggregate) -> int:
    if type(value) is not int or not least <= value <= greatest:
        raise InvalidInputError(
            f"{name} of a sketch is out of range",
            object_name=f"{aggregate}",
            found=repr(value),
            expected=f"a number from {least} to {greatest}",
        )
    return value


def _library() -> Any:
    try:
        return import_module("datasketches")
    except ImportError as cause:
        raise MissingExtraError(
            "an approximate aggregate needs the package datasketches",
            action="pip install 'lakestate[sketches]'",
        ) from cause


def _parse(parse: Callable[[bytes], Any], data: bytes, kind: str) -> Any:
    try:
        return parse(data)
    except _BAD_BYTES as cause:
        raise _corrupt(kind, f"{len(data)} bytes: {cause}", "bytes of such a sketch") from cause


def _corrupt(kind: str, found: str, expected: str) -> CorruptionError:
    return CorruptionError(
        f"a stored {kind} sketch cannot be read", found=found, expected=expected, action=RESTORE_OR_GO_BACK
    )


def _for_groups(compute: Callable[[int, int], bytes | None], offsets: np.ndarray) -> pa.Array:
    found = [compute(start, stop) for start, stop in pairwise(offsets.tolist())]
    return pa.array(found, pa.binary())


def _hashable(values: pa.Array) -> list[Any]:
    """Values as the library hashes them: integers, doubles or text."""
    type_ = values.type
    plain: dict[Callable[[pa.DataType], bool], pa.DataType] = {
        pa.types.is_floating: pa.float64(),
        pa.types.is_timestamp: pa.int64(),
        pa.types.is_date: pa.int32(),
        pa.types.is_boolean: pa.int8(),
    }
    found: list[Any] = next(
        (values.cast(target) for is_type, target in plain.items() if is_type(type_)), values
    ).to_pylist()
    if pa.types.is_binary(type_):
        return [value.hex() for value in found]
    return [str(value) for value in found] if pa.types.is_decimal(type_) else found
