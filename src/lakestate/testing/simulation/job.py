"""`SimulatedJob`: an operator, the rows it is given, and the oracle that knows what must come out.

Subclass it to put an operator of your own under the simulator's faults. The oracle is a plain
function of the rows up to an offset: however often epochs crashed, were repeated, rescaled or
compacted, state and output must be exactly what it says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakestate.operators.operator import Operator
from lakestate.protocol.metadata import Column
from lakestate.tables.event_time import event_time_us

Row = Mapping[str, Any]


class SimulatedJob(ABC):
    """One operator as a job, with its rows and its oracle."""

    operator_id = "operator"
    event_time: str | None = None
    """The column with the event time, if the operator needs a watermark."""
    delay_us = 0
    ignored: frozenset[str] = frozenset()
    """Columns of state and output that no oracle can know."""

    def __init__(self, rows: Sequence[Row], key: Sequence[str], schema: pa.Schema | None = None) -> None:
        self.rows = list(rows)
        self.key = tuple(key)
        self.schema = schema or pa.Table.from_pylist([dict(row) for row in self.rows]).schema

    @abstractmethod
    def operator(self, attempt: str, version: int) -> Operator:
        """The operator as one attempt of one subtask runs it. `version` is 1, or 2 after an upgrade."""

    @abstractmethod
    def state(self, rows: Sequence[Row], watermark_us: int | None) -> Mapping[str, Sequence[Row]] | None:
        """What each table must hold after exactly these rows, in any order; None to check nothing."""

    @abstractmethod
    def output(self, rows: Sequence[Row]) -> Sequence[Row] | None:
        """What must have been written after exactly these rows, in any order; None to check nothing."""

    def check_together(self, state: Mapping[str, Sequence[Row]], visible: Sequence[Row]) -> str | None:
        """What is wrong between the state of the newest epoch and all output, or None."""
        return None

    def source_watermark_us(self, upto: int) -> int | None:
        """The watermark of the source after so many rows."""
        if self.event_time is None or not upto:
            return None
        times = (event_time_us(row[self.event_time], "timestamp") for row in self.rows[:upto])
        return max(times) - self.delay_us

    def batch(self, rows: Sequence[Row]) -> pa.Table:
        """Rows as Arrow."""
        return pa.Table.from_pylist([dict(row) for row in rows], schema=self.schema)

    def output_columns(self) -> tuple[Column, ...]:
        """The columns of the output; none if the operator yields nothing."""
        return self.operator("schema", 1).output_columns

    def comparable(self, rows: Sequence[Row]) -> list[tuple[tuple[str, Any], ...]]:
        """Rows without what is ignored, their columns in order of name."""
        return [
            tuple(sorted((name, value) for name, value in row.items() if name not in self.ignored))
            for row in rows
        ]
