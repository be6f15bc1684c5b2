"""In how many partitions the rows of a batch are read, if they still lie as they were read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_READ = "LogicalRDD"
"""The batch that a streaming query hands over."""
_ROW_BY_ROW = frozenset({"Project", "Filter", "CollectMetrics", "Generate", "SubqueryAlias"})
"""What neither moves a row to another partition nor adds partitions. Each has one input."""


def read_partitions(frame: DataFrame) -> int | None:
    """How many partitions a frame has, or None if its rows may have been moved since they were read.

    Looks at the analysed plan only: no plan is made, and no job runs.
    """
    plan = frame._jdf.queryExecution().analyzed()
    while (name := plan.nodeName()) in _ROW_BY_ROW:
        plan = plan.child()
    return int(plan.rdd().getNumPartitions()) if name == _READ else None
