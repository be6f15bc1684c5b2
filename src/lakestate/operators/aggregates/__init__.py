"""Aggregates: what they keep, how two of them become one, and the operators that compute them.

An aggregate is mergeable: rows become accumulators, accumulators are merged in any order, and the result is
computed from the merged ones. No Spark here: expressions are evaluated before rows arrive.
"""

from lakestate.operators.aggregates.aggregate import Accumulator, Aggregate, BoundAggregate, Merge
from lakestate.operators.aggregates.collected import collect_list, collect_set, count_distinct
from lakestate.operators.aggregates.moments import stddev, variance
from lakestate.operators.aggregates.ordered import first, last, max_by, min_by
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
from lakestate.operators.aggregates.sketches import approx_count_distinct, approx_quantiles

__all__ = [
    "Accumulator",
    "Aggregate",
    "AggregatePlan",
    "BoundAggregate",
    "Merge",
    "RunningAggregate",
    "approx_count_distinct",
    "approx_quantiles",
    "bool_and",
    "bool_or",
    "collect_list",
    "collect_set",
    "count",
    "count_distinct",
    "first",
    "last",
    "max",
    "max_by",
    "mean",
    "min",
    "min_by",
    "stddev",
    "sum",
    "variance",
]
