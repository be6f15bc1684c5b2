"""`Operator`: what users subclass. It declares state tables and output, and reacts to rows and time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from inspect import iscoroutinefunction, isgeneratorfunction
from typing import ClassVar, TypeAlias

import pyarrow as pa

from lakestate.coordinator.commit import OperatorCommit
from lakestate.errors import InvalidInputError
from lakestate.operators.context import OperatorContext
from lakestate.operators.timers.table import TimerTime, timers_of
from lakestate.protocol.metadata import Column
from lakestate.tables.arrow.schema import arrow_fields, columns_of
from lakestate.tables.contract import Table

Batches: TypeAlias = "Iterable[pa.RecordBatch | pa.Table] | None"

EVENT_TIME_HOOKS = ("on_watermark",)
"""An operator that overrides one of these follows event time."""


class Operator:
    """One stateful step of a job.

    Attributes that are tables become the operator's state, named after the attribute. Inside a
    subtask `self.totals`, or `ctx.totals`, is the view of one subtask's part of it.

    >>> import lakestate as ls
    >>> from lakestate.testing import OperatorHarness
    >>> class Count(ls.Operator):
    ...     output = "user string, n bigint"
    ...     totals = ls.KeyedTable(key="user string", value="n bigint")
    ...
    ...     def process_batch(self, batch, ctx):
    ...         rows = pa.table(batch).group_by("user").aggregate([("user", "count")])
    ...         before = self.totals.get(rows).column("n").fill_null(0)
    ...         n = pa.compute.add(rows["user_count"], before)
    ...         new = pa.table({"user": rows["user"], "n": n})
    ...         self.totals.put(new)
    ...         yield new
    >>> harness = OperatorHarness(Count())
    >>> harness.epoch([{"user": "ann"}, {"user": "bob"}, {"user": "ann"}])
    [{'user': 'ann', 'n': 2}, {'user': 'bob', 'n': 1}]
    >>> harness.epoch([{"user": "ann"}])
    [{'user': 'ann', 'n': 3}]

    Every epoch creates its subtasks anew, anywhere in the cluster: what is not in a table is lost
    afterwards. Attributes that `__init__` sets are copied deeply; what a class or a module holds
    is shared by all subtasks of a process. Every hook may yield record batches or tables; they are
    checked against `output`.
    """

    output: str | pa.Schema | None = None
    """The columns that the operator yields, as a Spark SQL string or as an Arrow schema."""

    input: str | pa.Schema | None = None
    """The columns it needs. If given, they are checked before the job starts, and rows are cast to them."""

    follows_time: ClassVar[bool | None] = None
    """Whether it wants an epoch when the watermark has moved, even without rows. None: if it overrides
    `on_watermark`."""

    follows_processing_time: ClassVar[bool] = False
    """Whether it wants an epoch at the times for which it calls `ctx.wake_at`, even without rows."""
    output_time: str | None = None
    """The event time of the rows that it yields, as an SQL expression over `output`."""

    def on_start(self, ctx: OperatorContext) -> Batches:
        """Called in every epoch, before the first row."""

    def process_batch(self, batch: pa.RecordBatch, ctx: OperatorContext) -> Batches:
        """Process rows of this subtask's keys. Never called without rows."""
        raise NotImplementedError(f"{type(self).__name__} does not define process_batch")

    def on_rows_end(self, ctx: OperatorContext) -> Batches:
        """Called once in every epoch after its last row, before `on_watermark` and timers."""

    def on_watermark(self, watermark: datetime, ctx: OperatorContext) -> Batches:
        """Called once in every epoch after its rows, if there is a watermark yet.

        It is in UTC, may be the same as in the previous epoch, and never decreases.
        """

    def on_timer(self, rows: pa.Table, ctx: OperatorContext) -> Batches:
        """Called with timers whose time has come, in order of time: their keys, `at`, and other columns.

        After `on_watermark`, and again in the same epoch for timers that this sets in the past. When the
        stream has ended, all timers in event time fire before `on_close`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define on_timer")

    def on_close(self, ctx: OperatorContext) -> Batches:
        """Called in the last epoch of a stream that has ended (`query.stop(drain=True)`): no rows follow.

        Not called by any other stop. If the job is reopened, it continues with the state that this
        leaves: delete what you yield.
        """

    def on_epoch_end(self, ctx: OperatorContext) -> Batches:
        """Called once in every epoch, after `on_watermark` and `on_close`, whether they were called or not.

        All rows of the epoch have been processed by then, also those that the steps before this one yield
        in these hooks. Not called in the epoch of `query.stop(finish_files=True)`.
        """

    def on_commit(self, commit: OperatorCommit) -> None:
        """Called on the driver once an epoch is published, with the commit data of all subtasks.

        At least once for each published epoch with commit data, in the order of epochs: after a crash it is
        called again, by the next start. The target must know the newest epoch that it has, and ignore
        that and older ones.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define on_commit")

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of its inputs: a single unnamed one."""
        return ("",)

    def process(self, input_name: str, batch: pa.RecordBatch, ctx: OperatorContext) -> Batches:
        """Pass rows of an input to the method that takes them."""
        assert input_name == ""
        return self.process_batch(batch, ctx)

    def needed_columns(self, input_name: str) -> str | pa.Schema | None:
        """The columns that an input must have."""
        return self.input

    def tables(self) -> dict[str, Table]:
        """The state tables by attribute, of the class and of this instance."""
        found: dict[str, Table] = {}
        for owner in reversed(type(self).__mro__):
            found |= {name: item for name, item in vars(owner).items() if isinstance(item, Table)}
        for name, item in vars(self).items():
            if isinstance(item, Table):
                item.__set_name__(type(self), name)
                found[name] = item
        return found

    @property
    def output_columns(self) -> tuple[Column, ...]:
        """The columns of the output; empty if it yields nothing."""
        return () if self.output is None else columns_of(self.output, what="output")

    @property
    def output_schema(self) -> pa.Schema | None:
        """The Arrow schema of the output, or None if it yields nothing."""
        return pa.schema(arrow_fields(self.output_columns)) if self.output is not None else None


class TwoInputOperator(Operator):
    """An operator over two streams that are keyed alike: `left.connect(right).apply(…)`.

    Rows of both sides arrive in no particular order; what one side must remember for the other
    goes into a table. `left_input` and `right_input` may declare the needed columns.
    """

    left_input: ClassVar[str | pa.Schema | None] = None
    right_input: ClassVar[str | pa.Schema | None] = None

    def process_left(self, batch: pa.RecordBatch, ctx: OperatorContext) -> Batches:
        """Rows of the left stream."""
        raise NotImplementedError(f"{type(self).__name__} does not define process_left")

    def process_right(self, batch: pa.RecordBatch, ctx: OperatorContext) -> Batches:
        """Rows of the right stream."""
        raise NotImplementedError(f"{type(self).__name__} does not define process_right")

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of its inputs: left and right."""
        return ("left", "right")

    def process(self, input_name: str, batch: pa.RecordBatch, ctx: OperatorContext) -> Batches:
        """Pass rows to the method of their side."""
        return self.process_left(batch, ctx) if input_name == "left" else self.process_right(batch, ctx)

    def needed_columns(self, input_name: str) -> str | pa.Schema | None:
        """The columns that a side must have."""
        return self.left_input if input_name == "left" else self.right_input


def state_tables(operator: Operator) -> Sequence[Table]:
    """The operator's tables. Raises InvalidInputError if two have the same name."""
    tables = list(operator.tables().values())
    names = [table.name for table in tables]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError(
            f"two tables of {type(operator).__name__} have the same name", found=", ".join(twice)
        )
    return tables


def follows_event_time(operator: Operator) -> bool:
    """Whether the operator wants to be called when the watermark has moved.

    >>> class Alerts(Operator):
    ...     def on_watermark(self, watermark, ctx): ...
    >>> follows_event_time(Alerts()), follows_event_time(Operator())
    (True, False)
    """
    if operator.follows_time is not None:
        return operator.follows_time
    return any(_overrides(operator, hook) for hook in EVENT_TIME_HOOKS) or has_timers(
        operator, TimerTime.EVENT
    )


def follows_clock(operator: Operator) -> bool:
    """Whether the operator wants to be called at times of day, even if there are no rows."""
    return operator.follows_processing_time or has_timers(operator, TimerTime.PROCESSING)


def has_timers(operator: Operator, time: TimerTime) -> bool:
    """Whether the operator declares timers that follow this clock."""
    return any(timers.time is time for timers in timers_of(operator.tables()).values())


def check_timers(operator: Operator, where: str, *, has_event_time: bool) -> None:
    """Refuse timers that could never fire, or whose operator does not say what happens then."""
    timers = timers_of(operator.tables())
    if timers and not _overrides(operator, "on_timer"):
        raise InvalidInputError(
            "an operator has timers, and does not define on_timer",
            object_name=where,
            found=", ".join(timers),
            action="define on_timer(self, rows, ctx)",
        )
    if has_timers(operator, TimerTime.EVENT) and not has_event_time:
        raise InvalidInputError(
            "timers in event time never fire: no source of the operator's rows has event time",
            object_name=where,
            action='name it with source(…, event_time="ts"), or declare the timers with time="processing"',
        )


def _overrides(operator: Operator, hook: str) -> bool:
    return hook in vars(operator) or getattr(type(operator), hook) is not getattr(Operator, hook)


def has_on_commit(operator: Operator, where: str) -> bool:
    """Whether the operator commits output of its own.

    Raises InvalidInputError for one that declares only half of it: commit data that nobody commits, or an
    `on_commit` that is never called, or not run when it is called.
    """
    tables = [table.name for table in state_tables(operator) if table.config.uses_two_phase_commit]
    is_defined = _overrides(operator, "on_commit")
    if tables and not is_defined:
        raise InvalidInputError(
            "a table is declared for two-phase commit, and its operator does not define on_commit",
            object_name=where,
            found=f"two_phase_commit=True in {', '.join(tables)}",
            action="define on_commit(self, commit), or declare the table without two_phase_commit",
        )
    if is_defined and not tables:
        raise InvalidInputError(
            "an operator defines on_commit, and none of its tables can hold commit data",
            object_name=where,
            action="declare a GlobalKeyedTable with two_phase_commit=True, or remove on_commit",
        )
    if is_defined and (iscoroutinefunction(operator.on_commit) or isgeneratorfunction(operator.on_commit)):
        raise InvalidInputError(
            "on_commit is called, not awaited or iterated: its body would never run",
            object_name=where,
            expected="a plain function without yield",
        )
    return is_defined


def batches_of(yielded: Batches) -> Iterator[pa.RecordBatch]:
    """What a hook yielded, as record batches without the empty ones."""
    for item in yielded or ():
        if isinstance(item, pa.Table):
            yield from (batch for batch in item.combine_chunks().to_batches() if batch.num_rows)
        elif isinstance(item, pa.RecordBatch):
            if item.num_rows:
                yield item
        else:
            raise InvalidInputError(
                "an operator must yield pyarrow record batches or tables", found=type(item).__name__
            )
