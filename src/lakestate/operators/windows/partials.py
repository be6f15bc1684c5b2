"""`PanePartials`: the rows of a part of a stream as one row of accumulators for each pane.

For windows over all rows: each part is merged where it is, and only its few panes travel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakestate.operators.aggregates.plan import AggregatePlan
from lakestate.operators.windows.panes import ALL, PANE
from lakestate.protocol.metadata import Column


@dataclass(frozen=True)
class PanePartials:
    """Merges the rows of a part by pane."""

    plan: AggregatePlan
    arguments: Mapping[str, Sequence[str]]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the merged rows: the same key for all, the pane, and the accumulators."""
        return (Column(ALL, "int"), Column(PANE, "bigint"), *self.plan.state)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Merge batch by batch, so that a part of any size fits into memory."""
        merged: pa.Table | None = None
        for batch in batches:
            created = self.plan.combine(pa.Table.from_batches([batch]), [PANE], self.arguments)
            parts = [created] if merged is None else [merged.select(created.column_names), created]
            merged = self.plan.merge(pa.concat_tables(parts), [PANE])
        if merged is not None and merged.num_rows:
            all_ = pa.array(np.zeros(merged.num_rows, dtype=np.int32))
            table = merged.add_column(0, ALL, all_).select([column.name for column in self.columns])
            yield from table.combine_chunks().to_batches()
