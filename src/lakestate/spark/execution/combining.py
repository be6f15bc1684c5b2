"""`Combining`: whether rows are combined before or after they are routed, decided by the epoch before.

Combining before the routing moves one row of each key instead of all rows, and costs a second shuffle of
what is left. It pays if there are many rows of each key. The result is the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakestate.coordinator.epoch_plan import SubtaskReport
from lakestate.spark.execution.compile import CompiledPipeline
from lakestate.spark.graph.nodes import CombineNode

ROWS_MIN = 100_000
"""Rows of an epoch below which a second shuffle costs more than it saves."""

LEFT_MAX = 0.05
"""The share of rows that may be left after combining for it to pay.

Measured on one machine, a million rows: it costs a tenth if a tenth is left, gives a tenth if 1 of 200 is.
"""


class Combining:
    """What the last epoch with rows says about the next."""

    def __init__(self, pipeline: CompiledPipeline) -> None:
        self._steps = {
            stage.stage.name: stage.stage.steps[0].step_id
            for stage in pipeline.stages
            if isinstance(stage.stage.origin, CombineNode)
        }
        self.combined_first: frozenset[str] = frozenset()
        """The stages whose rows are combined first."""

    def learn(self, reports: Sequence[SubtaskReport], rows: int) -> None:
        """Decide for the next epoch by the rows that were read in this one, and those that were left."""
        if not self._steps or not rows:
            return
        left = dict.fromkeys(self._steps, 0)
        for report in reports:
            if report.stage in left:
                left[report.stage] += report.metrics[self._steps[report.stage]].rows_in
        pays = (name for name, count in left.items() if count <= LEFT_MAX * rows)
        self.combined_first = frozenset(pays if rows >= ROWS_MIN else ())
