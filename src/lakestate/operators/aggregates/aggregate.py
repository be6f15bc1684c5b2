"""`Aggregate`: what a user asks for, and `BoundAggregate`: the same over columns of known types."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
    function: str
    """What it computes, as a word that is stored with its columns: state of another is never taken for it."""
    takes_back: bool = False
    """Whether it can `negate`."""
    counts_duplicates: bool = True
    """Whether the same value a second time makes a difference."""
    constant_arguments: tuple[bool, ...] = ()
    """What it takes besides its arguments, for rows that count."""

    @abstractmethod
    def create(self, arguments: Sequence[pa.Array]) -> list[pa.Array]:
        """The accumulators of single rows, one for each."""

    def create_groups(self, arguments: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        """The accumulators of groups of rows: those from offsets[i] up to offsets[i + 1] are group i."""
        return self.merge(self.create(arguments), offsets)

    def sql(self, arguments: Sequence[str]) -> tuple[str, ...] | None:
        """The accumulators of many rows, as aggregate functions of Spark SQL; None if it has none."""
        return None

    def merge(self, columns: Sequence[pa.Array], offsets: np.ndarray) -> list[pa.Array]:
        """Merge accumulators: rows from offsets[i] up to, not including, offsets[i + 1] become row i."""
        raise NotImplementedError(f"{type(self).__name__} merges nothing itself")

    @abstractmethod
    def result(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The results of groups, from their accumulators."""

    def rows_that_count(self, arguments: Sequence[pa.Array]) -> pa.Array:
        """Which rows have an argument that is not null. What `where` leaves out has none."""
        counts = arguments[0].is_valid()
        for each in arguments[1:]:
            counts = pc.or_(counts, each.is_valid())
        return counts

    def negate(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Accumulators that take back what these have counted."""
        raise NotImplementedError(f"{type(self).__name__} takes nothing back")


class Aggregate:
    """What to compute over the rows of a group: an aggregate function and its arguments.

    Arguments and `where` are SQL expressions. Rows for which `where` is not true do not count.

    Derive from it to define one of your own. It must be mergeable: `create` makes the state of each row from
    the argument columns, `merge` makes one state of those with the same number in `groups`, and `result`
    computes the results of states. All three work on whole Arrow columns:

    >>> import lakestate as ls
    >>> import pyarrow as pa
    >>> import pyarrow.compute as pc
    >>> class GeometricMean(ls.Aggregate):
    ...     state = "n bigint, logs double"
    ...     output = "double"
    ...
    ...     def create(self, values):
    ...         logs = pc.ln(values.cast("double"))
    ...         return pa.table({"n": pc.if_else(logs.is_valid(), 1, 0), "logs": logs.fill_null(0.0)})
    ...
    ...     def merge(self, states, groups):
    ...         sums = states.append_column("group", groups).group_by("group", use_threads=False)
    ...         return sums.aggregate([("n", "sum"), ("logs", "sum")]).rename_columns(
    ...             ["group", "n", "logs"])
    ...
    ...     def result(self, states):
    ...         return pc.exp(pc.divide(states["logs"], states["n"].cast("double")))
    >>> from lakestate.operators.aggregates import RunningAggregate
    >>> from lakestate.testing import OperatorHarness
    >>> operator = RunningAggregate.over("user string", "price bigint", middle=GeometricMean("price"))
    >>> OperatorHarness(operator).epoch([{"user": "ann", "price": 2}, {"user": "ann", "price": 8}])
    [{'user': 'ann', 'middle': 4.0}]

    `merge` must not depend on the order of states. Groups are numbered from 0 without gaps, states come in
    their order, and the result has one row for each. Where rows may be taken back, `negate(states)` returns
    states that remove what these have added when they are merged; without it, all values are kept.
    """

    state: ClassVar[str | None] = None
    """The columns that a user-defined aggregate keeps, such as "n bigint, total double"."""
    output: ClassVar[str | None] = None
    """The type of a user-defined aggregate's result."""
    function: str | None = None
    """Its name in messages; by default that of its class."""
    needs_time: ClassVar[bool] = False
    """Whether it takes the event time of rows as its last argument."""

    def __init__(self, *arguments: str, where: str | None = None) -> None:
        for text in (*arguments, *(() if where is None else (where,))):
            if not isinstance(text, str) or not text.strip():
                raise InvalidInputError(
                    "an argument of an aggregate is not an expression", found=repr(text), expected="SQL text"
                )
        self.arguments = arguments
        self.where = where

    def bind(self, types: Sequence[str], where: str, *, retracts: bool = False) -> BoundAggregate:
        """The aggregate over arguments of these types. Raises InvalidInputError for a type it cannot take.

        With `retracts`, rows may be taken back: the result must be able to `negate`.
        """
        from lakestate.operators.aggregates.user_defined import bind_user_defined

        return bind_user_defined(self, where)

    def all_arguments(self, time: str | None, where: str) -> tuple[str, ...]:
        """The arguments, with the event time of rows where it is needed. `time` is None if they have none."""
        if not self.needs_time:
            return self.arguments
        if time is None:
            raise InvalidInputError(
                "an aggregate needs event time, and the rows have none",
                object_name=f"{self} of {where}",
                action='name it with source(…, event_time="ts") and keep that column, or take '
                "ls.min_by or ls.max_by with a column of your own",
            )
        return (*self.arguments, time)

    def row_arguments(self, time: str | None, where: str) -> tuple[str, ...]:
        """The arguments as they are evaluated for each row: null where the row does not count."""
        found = self.all_arguments(time, where)
        if self.state is not None:
            # It may count nulls: it gets the rows that count, and no others.
            return (*found, "true" if self.where is None else f"coalesce({self.where}, false)")
        if self.where is None:
            return found
        return tuple(f"CASE WHEN {self.where} THEN {text} END" for text in found)

    def __repr__(self) -> str:
        shown = [*map(str, self.arguments), *(() if self.where is None else (f"where={self.where!r}",))]
        return f"{self.function or type(self).__name__.lower()}({', '.join(shown)})"


def refuse_type(where: str, aggregate: Aggregate, found: str, expected: str) -> InvalidInputError:
    """The error for an argument of a type that an aggregate cannot take."""
    return InvalidInputError(
        "an aggregate cannot take an argument of this type",
        object_name=f"{aggregate} of {where}",
        found=found,
        expected=expected,
        action='cast the argument, for example "CAST(price AS DOUBLE)"',
    )
