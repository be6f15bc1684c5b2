"""Aggregates: what they keep, how two of them become one, and the operators that compute them.

An aggregate is mergeable: rows become accumulators, accumulators are merged in any order, and the result is
computed from the merged ones. No Spark here: expressions are evaluated before rows arrive.
"""

from lakestate.operators.aggregates.aggregate import Accumulator, Aggregate, BoundAggregate, Merge
from lakestate.operators.aggregates.plain import (
    bool_and,
    bool_or,
    count,
    max,  # noqa: A004
    mean,
    min,  # noqa: A004
    sum,  # noqa: A004
)
from lakestate.operators.aggregates.plan import AggregatePlan
from lakestate.operators.aggregates.running import RunningAggregate

__all__ = [
    "Accumulator",
    "Aggregate",
    "AggregatePlan",
    "BoundAggregate",
    "Merge",
    "RunningAggregate",
    "bool_and",
    "bool_or",
    "count",
    "max",
    "mean",
    "min",
    "sum",
]
