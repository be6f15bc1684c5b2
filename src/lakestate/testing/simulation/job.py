"""`SimulatedJob`: an operator, its input rows, and the oracle that computes the expected result.

Subclass it to run an operator of your own under the simulator's faults. The oracle is a plain
function of what the operator has seen up to an epoch. State and output must equal it, no matter how often
epochs failed or were repeated, rescaled or compacted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isnan
from typing import Any, TypeVar

import pyarrow as pa

from lakestate.coordinator.commit import OperatorCommit
from lakestate.operators.operator import Operator
from lakestate.protocol.metadata import Column
from lakestate.tables.event_time import event_time_us
from lakestate.testing.operator_harness import table_of
from lakestate.testing.simulation.seen import Row, Seen

Answer = TypeVar("Answer")


class JobCodeError(Exception):
    """Ends a run because the job's own code raised an error, which is in `SimulatedJob.error`."""


class SimulatedJob(ABC):
    """One operator as a job, with its rows and its oracle."""

    operator_id = "operator"
    event_time: str | None = None
    """The column with the event time, if the operator needs a watermark. Rows without a time are not late."""
    delay_us = 0
    ignored: frozenset[str] = frozenset()
    """Columns of state and output that no oracle can know."""
    error: BaseException | None = None
    """What the job's own code raised in `call_user_code`. The run raises it: no promise is broken."""

    def __init__(self, rows: Sequence[Row], key: Sequence[str], schema: pa.Schema | None = None) -> None:
        self.rows = list(rows)
        self.key = tuple(key)
        self.schema = schema or table_of(self.rows).schema

    @abstractmethod
    def operator(self, attempt: str, version: int) -> Operator:
        """The operator as one attempt of one subtask runs it. `version` is 1, or 2 after an upgrade."""

    @abstractmethod
    def state(self, seen: Seen) -> Mapping[str, Sequence[Row]] | None:
        """What each table must hold after exactly these epochs, in any order; None to check nothing."""

    @abstractmethod
    def output(self, seen: Seen) -> Sequence[Row] | None:
        """What must have been written after exactly these epochs, in any order; None to check nothing."""

    def committed(self, seen: Seen) -> Sequence[Row] | None:
        """What the target of `on_commit` must hold after exactly these epochs; None to check nothing."""
        return None

    def check_commit(
        self, commit: OperatorCommit, earlier: Sequence[Row], own: Sequence[Row], watermark_us: int | None
    ) -> str | None:
        """How a commit contradicts the rows of earlier epochs and of its own, or None.

        The watermark is that of the epoch before.
        """
        return None

    def target(self) -> Sequence[Row]:
        """What the target of `on_commit` holds now."""
        return ()

    def check_consistency(self, state: Mapping[str, Sequence[Row]], visible: Sequence[Row]) -> str | None:
        """How the state of the newest epoch contradicts the output, or None."""
        return None

    def time_of(self, row: Row) -> Any:
        """The event time of a row."""
        assert self.event_time is not None
        return row[self.event_time]

    def source_watermark_us(self, upto: int) -> int | None:
        """The watermark of the source after so many rows."""
        if self.event_time is None or not upto:
            return None
        times = [self.time_of(row) for row in self.rows[:upto]]
        times_us = [event_time_us(time, "timestamp") for time in times if time is not None]
        return max(times_us) - self.delay_us if times_us else None

    def batch(self, rows: Sequence[Row]) -> pa.Table:
        """Rows as Arrow."""
        return pa.Table.from_pylist([dict(row) for row in rows], schema=self.schema)

    def inputs(self, rows: Sequence[Row]) -> Mapping[str, pa.Table]:
        """Rows as Arrow, by the name of the input that takes them."""
        return {"": self.batch(rows)}

    def output_columns(self) -> tuple[Column, ...]:
        """The columns of the output; none if the operator yields nothing."""
        return self.operator("schema", 1).output_columns

    def comparable(self, rows: Sequence[Row]) -> list[tuple[tuple[str, Any], ...]]:
        """Rows without ignored columns, with columns in order of name."""
        return [
            tuple((name, _frozen(row[name])) for name in sorted(row) if name not in self.ignored)
            for row in rows
        ]

    def call_user_code(self, own: Callable[..., Answer], *arguments: Any) -> Answer:
        """Call a function of the job's own code. What it raises is kept and ends the run.

        That includes every `BaseException`: `pytest.fail` raises one, and an actor that it ended would
        never pass on its turn.
        """
        try:
            return own(*arguments)
        except BaseException as error:
            self.error = self.error or error
            raise JobCodeError(f"{type(error).__name__}: {error}") from error


def _frozen(value: Any) -> Any:
    """A hashable equivalent. A map as pairs, as Arrow has it, equals the same map as a dict."""
    if isinstance(value, dict):
        return _frozen_map(value.items())
    if isinstance(value, float) and isnan(value):
        # NaN is not equal to itself.
        return "NaN"
    if not isinstance(value, list | tuple):
        return value
    if (
        value
        and isinstance(value, list)
        and all(isinstance(each, tuple) and len(each) == 2 for each in value)
    ):
        return _frozen_map(value)
    return tuple(map(_frozen, value))


def _frozen_map(items: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, Any], ...]:
    return tuple(
        sorted(((_frozen(key), _frozen(value)) for key, value in items), key=lambda item: repr(item[0]))
    )
