"""`Aggregate`: what a user asks for, and `BoundAggregate`: the same over columns of known types."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa

from lakestate.errors import InvalidInputError


class Merge(Enum):
    """How accumulators of one group become one: as Arrow can do it for all groups at once."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    OWN = "own"
    """As the aggregate's own `merge` does it."""


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A column of state that an aggregate keeps for each group."""

    suffix: str
    """Appended to the name of the aggregate, unless it is the only accumulator."""
    type: str
    merge: Merge


class BoundAggregate(ABC):
    """An aggregate over arguments of known types. Null means: no row has counted yet."""

    accumulators: tuple[Accumulator, ...]
    output: str
    """The type of the result."""

    @abstractmethod
    def create(self, arguments: Sequence[pa.Array]) -> list[pa.Array]:
        """The accumulators of single rows, one for each."""

    def sql(self, arguments: Sequence[str]) -> tuple[str, ...] | None:
        """The accumulators of many rows, as aggregate functions of Spark SQL; None if it has none."""
        return None

    def merge(self, columns: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        """Merge accumulators: rows from offsets[i] up to, not including, offsets[i + 1] become row i."""
        raise NotImplementedError(f"{type(self).__name__} merges nothing itself")

    @abstractmethod
    def result(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The results of groups, from their accumulators."""

    def negate(self, columns: Sequence[pa.Array]) -> list[pa.Array] | None:
        """Accumulators that take back what these have counted; None if that is not possible."""
        return None


class Aggregate(ABC):
    """What to compute over the rows of a group: an aggregate function and its arguments.

    Arguments and `where` are SQL expressions. Rows for which `where` is not true do not count.
    """

    def __init__(self, *arguments: str, where: str | None = None) -> None:
        for text in (*arguments, *(() if where is None else (where,))):
            if not isinstance(text, str) or not text.strip():
                raise InvalidInputError(
                    "an argument of an aggregate is not an expression", found=repr(text), expected="SQL text"
                )
        self.arguments = arguments
        self.where = where

    @abstractmethod
    def bind(self, types: Sequence[str], where: str, *, retracts: bool = False) -> BoundAggregate:
        """The aggregate over arguments of these types. Raises InvalidInputError for a type it cannot take.

        With `retracts`, rows may be taken back: the result must be able to `negate`.
        """

    def row_arguments(self) -> tuple[str, ...]:
        """The arguments as they are evaluated for each row: null where the row does not count."""
        if self.where is None:
            return self.arguments
        return tuple(f"CASE WHEN {self.where} THEN {text} END" for text in self.arguments)

    def __repr__(self) -> str:
        shown = [*self.arguments, *(() if self.where is None else (f"where={self.where!r}",))]
        return f"{type(self).__name__.lower()}({', '.join(shown)})"


def refuse_type(where: str, aggregate: Aggregate, found: str, expected: str) -> InvalidInputError:
    """The error for an argument of a type that an aggregate cannot take."""
    return InvalidInputError(
        "an aggregate cannot take an argument of this type",
        object_name=f"{aggregate} of {where}",
        found=found,
        expected=expected,
        action='cast the argument, for example "CAST(price AS DOUBLE)"',
    )
