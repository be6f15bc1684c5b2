"""`SessionAggregate`: aggregates of rows of a key that follow each other in less than a gap.

The rows of an epoch are united with the open sessions of their keys, which one prefix lookup finds. A second
table holds until when sessions are open, by time, so that finding those that close costs what closes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.config import duration_us
from lakestate.operators.aggregates.aggregate import Aggregate
from lakestate.operators.aggregates.changes import change_rows
from lakestate.operators.aggregates.plan import AggregatePlan, changed_rows
from lakestate.operators.aggregates.running import bind_to_columns
from lakestate.operators.context import OperatorContext
from lakestate.operators.operator import Operator
from lakestate.operators.windows.intervals import Intervals, merge_intervals, number_keys
from lakestate.operators.windows.panes import OUTPUT_TIME, WINDOW_END, WINDOW_START
from lakestate.operators.windows.specs import Duration, Session, window_name
from lakestate.protocol.metadata import Column
from lakestate.row_kind import CHANGE, DELETE, Emit
from lakestate.tables.arrow.columns import beside
from lakestate.tables.arrow.schema import arrow_fields, arrow_type, columns_of
from lakestate.tables.keyed.table import KeyedTable, Ttl
from lakestate.tables.keyed.view import KeyedView
from lakestate.tables.time_key.table import TimeKeyTable
from lakestate.tables.time_key.view import TimeKeyView

TIME = "_time"
"""The column of the input that holds the event time, in microseconds since 1970."""

_SESSION = "_session"


@dataclass(frozen=True, slots=True)
class GrownSessions:
    """Sessions with new rows, and the stored ones that are part of them now."""

    keys: pa.Table
    spans: Intervals
    after: pa.Table
    """The accumulators."""
    stored: pa.Table
    of: np.ndarray
    """For each stored session, the position of the one that it is part of."""

    @property
    def _keeps_start(self) -> np.ndarray:
        same: np.ndarray = _micros(self.stored["session_start"]) == self.spans.first[self.of]
        return same

    @property
    def absorbed(self) -> pa.Table:
        """Stored sessions that are part of one with an earlier start."""
        return self.stored.filter(pa.array(~self._keeps_start))

    @property
    def places_before(self) -> np.ndarray:
        """For each session, the position of the stored one with the same start, or -1."""
        places = np.full(len(self.spans), -1)
        kept = np.flatnonzero(self._keeps_start)
        places[self.of[kept]] = kept
        return places

    @property
    def has_moved(self) -> np.ndarray:
        """Which sessions are new, or have another start or end than before."""
        same = self._keeps_start & (_micros(self.stored["last_row"]) == self.spans.last[self.of])
        moved = np.ones(len(self.spans), dtype=bool)
        moved[self.of[same]] = False
        return moved


class SessionAggregate(Operator):
    """Aggregates by key and session. A session is over when the watermark is `gap` after its last row.

    >>> import lakestate as ls
    >>> from datetime import UTC, datetime
    >>> from lakestate.testing import OperatorHarness
    >>> visits = SessionAggregate.over("user string", "ts timestamp", ls.Session("10 seconds"), n=ls.count())
    >>> harness = OperatorHarness(visits)
    >>> def at(second): return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
    >>> harness.epoch([{"user": "ann", "ts": at(1)}, {"user": "ann", "ts": at(15)}])
    []
    >>> harness.epoch([{"user": "ann", "ts": at(8)}], watermark=at(20))
    []
    >>> rows = harness.epoch(watermark=at(25))
    >>> [(row["window_start"].second, row["window_end"].second, row["n"]) for row in rows]
    [(1, 25, 3)]
    """

    follows_time: ClassVar[bool | None] = True

    def __init__(
        self,
        key: Sequence[Column],
        window: Session,
        plan: AggregatePlan,
        arguments: Mapping[str, Sequence[str]],
        *,
        emit: Emit = Emit.FINAL,
        lateness_us: int = 0,
        time_type: str = "timestamp",
        time: str = TIME,
    ) -> None:
        self._key = [column.name for column in key]
        self._plan = plan
        self._arguments = arguments
        self._emit = emit
        self._gap_us = window.gap_us
        self._open_us = window.gap_us + lateness_us
        """How long after its last row a session is open."""
        self._time = time
        self._time_type = arrow_type(time_type)
        self._rows: list[pa.RecordBatch] = []
        times = (Column(WINDOW_START, time_type), Column(WINDOW_END, time_type))
        changes = (Column(CHANGE, "string"),) if emit is Emit.CHANGES else ()
        self.output = pa.schema(arrow_fields((*key, *times, *plan.output, *changes)))
        self.output_time = OUTPUT_TIME
        name = window_name(window, lateness_us)
        start = Column("session_start", time_type)
        self.sessions = KeyedTable(
            f"sessions_{name}",
            key=pa.schema(arrow_fields((*key, start))),
            value=pa.schema(arrow_fields((Column("last_row", time_type), *plan.state))),
            route_by=self._key,
            ttl=Ttl(f"{self._open_us - 1} us", "last_row"),
            meanings=plan.meanings,
            description="The open sessions of every key: the time of the last row, and the accumulators.",
        )
        self.deadlines = TimeKeyTable(
            f"deadlines_{name}",
            key=pa.schema(arrow_fields(key)),
            value=pa.schema(arrow_fields((start, Column("open_until", time_type)))),
            time="open_until",
            retention=timedelta(0),
            description="The last moment at which a session is open, unless it has grown since.",
        )

    @classmethod
    def over(
        cls,
        key: str,
        columns: str,
        window: Session,
        *,
        time: str = "ts",
        emit: str = "final",
        allowed_lateness: Duration = "0 seconds",
        **aggregates: Aggregate,
    ) -> Any:
        """The operator over rows with these key and other columns, for tests without Spark."""
        known = {column.name: column.type for column in columns_of(f"{key}, {columns}", what="row")}
        plan, arguments = bind_to_columns(aggregates, known, time=time)
        return cls(
            columns_of(key, what="key"),
            window,
            plan,
            arguments,
            emit=Emit.of(emit, "session"),
            lateness_us=duration_us(allowed_lateness),
            time_type=known[time],
            time=time,
        )

    def process_batch(self, batch: pa.RecordBatch, ctx: OperatorContext) -> None:
        """Keep the rows until all are there: then the sessions of every key are looked up once."""
        self._rows.append(batch)

    def on_epoch_end(self, ctx: OperatorContext) -> Iterator[pa.Table]:
        """Unite the rows with open sessions, and yield what changed or what is over."""
        rows = self._take_rows(ctx)
        if rows is not None and rows.num_rows:
            grown = self._grow(rows, ctx.view("sessions"))
            self._write(grown, ctx.view("sessions"), ctx.view("deadlines"))
            if self._emit is Emit.CHANGES:
                yield from self._changes(grown)
        yield from self._close(ctx)

    def _take_rows(self, ctx: OperatorContext) -> pa.Table | None:
        """The rows of the epoch that are not late. A row without time belongs to no session."""
        if not self._rows:
            return None
        rows = pa.Table.from_batches(self._rows)
        self._rows = []
        is_taken = rows[self._time].is_valid()
        if ctx.previous_watermark_us is not None:
            first_us = ctx.previous_watermark_us - self._open_us
            is_taken = pc.and_kleene(is_taken, pc.greater(rows[self._time].cast(pa.int64()), first_us))
        return rows.filter(is_taken)

    def _grow(self, rows: pa.Table, sessions: KeyedView) -> GrownSessions:
        """Unite the rows with the open sessions of their keys."""
        keys, ids = number_keys(rows.select(self._key))
        times = _micros(rows[self._time])
        stored = sessions.get_prefix(keys)
        before = Intervals(
            stored[sessions.QUERY].to_numpy(), _micros(stored["session_start"]), _micros(stored["last_row"])
        )
        spans, places = merge_intervals(before.join(Intervals(ids, times, times)), self._gap_us)
        has_rows = np.zeros(len(spans), dtype=bool)
        has_rows[places[len(before) :]] = True
        numbers = np.cumsum(has_rows) - 1
        is_part = has_rows[places[: len(before)]]
        stored = stored.filter(pa.array(is_part))
        of = numbers[places[: len(before)][is_part]]
        spans = spans.take(np.flatnonzero(has_rows))
        of_rows = pa.array(numbers[places[len(before) :]])
        created = self._plan.combine(rows.append_column(_SESSION, of_rows), [_SESSION], self._arguments)
        after = self._merge(stored.append_column(_SESSION, pa.array(of)), created)
        return GrownSessions(keys.take(pa.array(spans.ids)), spans, after, stored, of)

    def _merge(self, stored: pa.Table, created: pa.Table) -> pa.Table:
        """The accumulators of all sessions, in their order."""
        both = pa.concat_tables([stored.select(created.column_names), created])
        merged = self._plan.merge(both, [_SESSION])
        order = np.argsort(merged[_SESSION].to_numpy())
        return merged.drop_columns(_SESSION).take(pa.array(order))

    def _write(self, grown: GrownSessions, sessions: KeyedView, deadlines: TimeKeyView) -> None:
        sessions.delete(grown.absorbed.select([*self._key, "session_start"]))
        starts, last = self._timestamps(grown.spans.first), self._timestamps(grown.spans.last)
        named = grown.keys.append_column("session_start", starts)
        sessions.put(beside(named.append_column("last_row", last), grown.after))
        ends = self._timestamps(grown.spans.last + self._open_us - 1)
        moved = named.append_column("open_until", ends).filter(pa.array(grown.has_moved))
        deadlines.insert(moved)

    def _changes(self, grown: GrownSessions) -> Iterator[pa.Table]:
        """Sessions that are part of others now are deleted. What has the same start is updated."""
        gone = grown.absorbed
        shown = self._shown(gone, _micros(gone["session_start"]), _micros(gone["last_row"]), gone)
        yield shown.append_column(CHANGE, pa.array([DELETE] * gone.num_rows, pa.string()))
        places = grown.places_before
        was = pa.array(places >= 0)
        found = grown.stored.take(pa.array(places, mask=places < 0))
        last_before = np.where(places >= 0, _micros(found["last_row"].fill_null(0)), grown.spans.last)
        old = self._shown(grown.keys, grown.spans.first, last_before, found)
        new = self._shown(grown.keys, grown.spans.first, grown.spans.last, grown.after)
        differs = pc.or_(changed_rows(self._plan, old, new), pa.array(last_before != grown.spans.last))
        yield change_rows(old, new, was, pa.array(np.ones(len(places), dtype=bool)), differs)

    def _close(self, ctx: OperatorContext) -> Iterator[pa.Table]:
        """Yield sessions that are over, if they come out only then. They expire with this epoch."""
        ends_all = ctx.is_last and self._emit is Emit.FINAL
        if self._emit is not Emit.FINAL or (ctx.watermark_us is None and not ends_all):
            return
        sessions: KeyedView = ctx.view("sessions")
        deadlines: TimeKeyView = ctx.view("deadlines")
        before_us, now_us = ctx.previous_watermark_us, ctx.watermark_us
        due = deadlines.rows_between(before_us, None if ends_all else now_us, ["session_start"])
        if not due.num_rows:
            return
        due = due.group_by([*self._key, "session_start"], use_threads=False).aggregate([])
        is_over, found = sessions.lookup(due)
        if not ends_all:
            ends = pc.add(found["last_row"].cast(pa.int64()), self._open_us)
            is_over = pc.and_(is_over, pc.fill_null(pc.less_equal(ends, now_us), False))
        over = beside(due, pa.Table.from_batches([found])).filter(is_over)
        if ends_all:
            sessions.delete(over.select(due.column_names))
            deadlines.delete(due.select(self._key))
        yield self._shown(over, _micros(over["session_start"]), _micros(over["last_row"]), over)

    def _shown(self, keys: pa.Table, first: np.ndarray, last: np.ndarray, groups: pa.Table) -> pa.Table:
        results = self._plan.results(groups)
        times = (self._timestamps(first), self._timestamps(last + self._gap_us))
        return pa.table(
            [*keys.select(self._key).columns, *times, *results.values()],
            names=[*self._key, WINDOW_START, WINDOW_END, *results],
        )

    def _timestamps(self, micros: np.ndarray) -> pa.Array:
        return pa.array(micros, pa.int64()).cast(self._time_type)


def _micros(times: pa.ChunkedArray) -> np.ndarray:
    micros: np.ndarray = times.cast(pa.int64()).to_numpy()
    return micros
