"""Sums of floats that can be taken back: NaN and infinities are counted, because nothing subtracts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.operators.aggregates.aggregate import Accumulator, BoundAggregate, Merge
from lakestate.operators.aggregates.groups import sum_by_group

_SPECIAL = ("nan", "inf", "neg_inf")
_INFINITY = "double('infinity')"


@dataclass(frozen=True)
class FiniteValues(BoundAggregate):
    """An aggregate of the finite values, and how many there are of each other kind."""

    inner: BoundAggregate
    is_any_nan: bool
    """Whether an infinity makes the result NaN, as in a variance, or is the result itself."""
    takes_back = True

    @property
    def function(self) -> str:  # type: ignore[override]
        """That of the finite values."""
        return self.inner.function

    @property
    def output(self) -> str:  # type: ignore[override]
        """That of the finite values."""
        return self.inner.output

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:  # type: ignore[override]
        """Those of the finite values, and three counts."""
        merge = Merge.OWN if self._merges_itself else Merge.SUM
        return (*self.inner.accumulators, *(Accumulator(name, "bigint", merge) for name in _SPECIAL))

    def create(self, arguments: Sequence[pa.Array]) -> list[pa.Array]:
        """A value counts as what it is."""
        values = pc.cast(arguments[0], pa.float64())
        kinds = [pc.is_nan(values), pc.equal(values, np.inf), pc.equal(values, -np.inf)]
        finite = pc.if_else(pc.is_finite(values), values, pa.scalar(None, pa.float64()))
        counts = [pc.cast(pc.fill_null(kind, False), pa.int64()) for kind in kinds]
        return [*self.inner.create([finite]), *counts]

    def sql(self, arguments: Sequence[str]) -> tuple[str, ...] | None:
        """The aggregate with a filter, and COUNT_IF."""
        (value,) = arguments
        inner = self.inner.sql([f"CASE WHEN abs({value}) < {_INFINITY} THEN {value} END"])
        kinds = (f"isnan({value})", f"{value} = {_INFINITY}", f"{value} = -{_INFINITY}")
        return None if inner is None else (*inner, *(f"count_if({kind})" for kind in kinds))

    def merge(self, columns: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        """Counts are added."""
        counts = [pc.fill_null(column, 0).to_numpy() for column in columns[-3:]]
        merged = [pa.array(sum_by_group(each, offsets)) for each in counts]
        return [*self.inner.merge(columns[:-3], offsets), *merged]

    def result(self, columns: Sequence[pa.Array]) -> pa.Array:
        """What the values that are not finite make of it, if there are any."""
        nan, up, down = (pc.fill_null(pc.greater(column, 0), False) for column in columns[-3:])
        found = self.inner.result(columns[:-3])
        if self.is_any_nan:
            return pc.if_else(pc.or_(nan, pc.or_(up, down)), np.nan, found)
        found = pc.if_else(up, np.inf, pc.if_else(down, -np.inf, found))
        return pc.if_else(pc.or_(nan, pc.and_(up, down)), np.nan, found)

    def negate(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """All with the other sign."""
        return [*self.inner.negate(columns[:-3]), *(pc.negate(column) for column in columns[-3:])]

    @property
    def _merges_itself(self) -> bool:
        return any(each.merge is Merge.OWN for each in self.inner.accumulators)
