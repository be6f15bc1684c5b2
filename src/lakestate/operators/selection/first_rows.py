"""`FirstRows`: the first row of each key, and none that follows it within some time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestate.config import duration_us
from lakestate.operators.context import OperatorContext
from lakestate.operators.operator import Operator
from lakestate.operators.selection.codes import Codes, group_codes, order_codes
from lakestate.operators.selection.row_columns import RowColumns, add_us, not_before, times_us, whole_table
from lakestate.operators.selection.sorted_rows import SortedRows, starts_of
from lakestate.tables.arrow.schema import arrow_fields
from lakestate.tables.keyed.table import KeyedTable
from lakestate.tables.time_key.table import TimeKeyTable

FIRST_SEEN = "first_seen"
_DESCRIPTION = "The keys of rows that were passed on, and when."


class FirstRows(Operator):
    """Passes on a row if no row of its key was passed on within some event time before or after it.

    Rows of an epoch are taken in the order of their event times, then of all columns from left to right.
    Rows behind the watermark are dropped: whether their key was there is no longer known.

    >>> from lakestate.testing import OperatorHarness
    >>> once = FirstRows.over("id string", "ts timestamp, n int", time="ts", within="1 minute")
    >>> harness = OperatorHarness(once)
    >>> from datetime import UTC, datetime
    >>> at = lambda minute, second=0: datetime(2026, 1, 1, 12, minute, second, tzinfo=UTC)
    >>> rows = [{"id": "a", "ts": at(0, 9), "n": 2}, {"id": "a", "ts": at(0, 5), "n": 1}]
    >>> [row["n"] for row in harness.epoch(rows)]
    [1]
    >>> rows = [{"id": "a", "ts": at(1, 5), "n": 3}, {"id": "a", "ts": at(1, 6), "n": 4}]
    >>> [row["n"] for row in harness.epoch(rows)]
    [4]
    """

    def __init__(self, rows: RowColumns, *, time: str, within_us: int) -> None:
        rows.require_free(FIRST_SEEN, "deduplicate")
        self._columns = rows
        self._time = time
        self._within_us = within_us
        self._rows: list[pa.RecordBatch] = []
        self.input = rows.schema
        self.output = pa.schema(arrow_fields(rows.output))
        self.seen = TimeKeyTable(
            key=rows.key_schema,
            value=pa.schema([pa.field(FIRST_SEEN, rows.schema.field(time).type)]),
            time=FIRST_SEEN,
            retention=f"{within_us} us",
            description=_DESCRIPTION,
        )

    @classmethod
    def over(cls, key: str, columns: str, *, time: str, within: str) -> Any:
        """The operator over rows with these key and other columns, for tests without Spark."""
        return cls(RowColumns.of(key, columns), time=time, within_us=duration_us(within))

    def process_batch(self, batch: pa.RecordBatch, ctx: OperatorContext) -> None:
        """Keep the rows until all are there: then every key is looked up once."""
        self._rows.append(batch)

    def on_epoch_end(self, ctx: OperatorContext) -> Iterator[pa.Table]:
        """Pass on the rows whose key is new, and remember their keys and times."""
        if not self._rows:
            return
        rows = not_before(whole_table(self._rows), self._time, ctx.previous_watermark_us)
        self._rows = []
        if not rows.num_rows:
            return
        kept = rows.take(pa.array(self._choose(rows, ctx.view("seen"))))
        seen = kept.select([*self._columns.key, self._time])
        ctx.view("seen").insert(seen.rename_columns([*self._columns.key, FIRST_SEEN]))
        yield kept.select(self._columns.output_names)

    def _choose(self, rows: pa.Table, seen: Any) -> Codes:
        """The numbers of the rows to pass on."""
        times, keys = times_us(rows, self._time), group_codes(rows.select(self._columns.key).columns)
        arranged = SortedRows.of([*keys, times]).break_ties(rows)
        begins = arranged.begins_group(keys)
        times = times[arranged.rows]
        is_open = ~self._is_repeated(rows, arranged, begins, times, seen)
        chosen = np.flatnonzero(is_open)
        groups = starts_of(begins)[chosen]
        return arranged.rows[chosen[first_of_each(groups, times[chosen], self._within_us)]]

    def _is_repeated(
        self, rows: pa.Table, arranged: SortedRows, begins: npt.NDArray[np.bool_], times: Codes, seen: Any
    ) -> npt.NDArray[np.bool_]:
        """Whether a row with the key of each row was passed on in an earlier epoch, within the time."""
        keys = rows.select(self._columns.key).take(pa.array(arranged.rows[begins]))
        span = np.array([times.min(), times.max()])
        start, end = add_us(span, -self._within_us)[0], add_us(span, self._within_us + 1)[1]
        found = seen.rows_of(keys, int(start), int(end), columns=[FIRST_SEEN])
        repeated = np.zeros(len(times), dtype=bool)
        if not found.num_rows:
            return repeated
        asked = found[seen.QUERY].combine_chunks().to_numpy()
        known_of_each = np.bincount(asked, minlength=keys.num_rows)
        groups = np.cumsum(begins) - 1
        high = np.cumsum(known_of_each)[groups]
        low = high - known_of_each[groups]
        candidates = np.flatnonzero(low < high)
        known = times_us(found, FIRST_SEEN)
        times = times[candidates]
        low, high = low[candidates], high[candidates]
        place = first_not_less(known, low, high, add_us(times, -self._within_us))
        near = (place < high) & (known[np.minimum(place, len(known) - 1)] <= add_us(times, self._within_us))
        repeated[candidates[near]] = True
        return repeated


class FirstRowsForEver(Operator):
    """Passes on the first row of each key, and no other.

    With `ttl`, a key is forgotten that long after its row was passed on, in processing time.

    >>> from lakestate.testing import OperatorHarness
    >>> harness = OperatorHarness(FirstRowsForEver.over("id string", "n int"))
    >>> harness.epoch([{"id": "a", "n": 2}, {"id": "a", "n": 1}])
    [{'id': 'a', 'n': 1}]
    >>> harness.epoch([{"id": "a", "n": 0}, {"id": "b", "n": 3}])
    [{'id': 'b', 'n': 3}]
    """

    def __init__(self, rows: RowColumns, *, time: str | None = None, ttl_us: int | None = None) -> None:
        rows.require_free(FIRST_SEEN, "deduplicate")
        self._columns = rows
        self._time = time
        self._rows: list[pa.RecordBatch] = []
        self.input = rows.schema
        self.output = pa.schema(arrow_fields(rows.output))
        self.seen = KeyedTable(
            key=rows.key_schema,
            value=f"{FIRST_SEEN} timestamp",
            ttl=None if ttl_us is None else f"{ttl_us} us",
            description=_DESCRIPTION,
        )

    @classmethod
    def over(cls, key: str, columns: str = "", *, time: str | None = None, ttl: str | None = None) -> Any:
        """The operator over rows with these key and other columns, for tests without Spark."""
        return cls(RowColumns.of(key, columns), time=time, ttl_us=None if ttl is None else duration_us(ttl))

    def process_batch(self, batch: pa.RecordBatch, ctx: OperatorContext) -> None:
        """Keep the rows until all are there: then every key is looked up once."""
        self._rows.append(batch)

    def on_epoch_end(self, ctx: OperatorContext) -> Iterator[pa.Table]:
        """Pass on the first rows of keys that are new, and remember the keys."""
        if not self._rows:
            return
        rows = whole_table(self._rows)
        self._rows = []
        keys = group_codes(rows.select(self._columns.key).columns)
        times = (
            [] if self._time is None else order_codes(rows[self._time], descending=False, nulls_first=True)
        )
        arranged = SortedRows.of([*keys, *times]).break_ties(rows)
        first = rows.take(pa.array(arranged.rows[arranged.begins_group(keys)]))
        is_known = ctx.view("seen").contains(first.select(self._columns.key))
        kept = first.filter(pa.compute.invert(is_known))
        if not kept.num_rows:
            return
        now = pa.scalar(ctx.processing_time_us, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        seen = kept.select(self._columns.key).append_column(FIRST_SEEN, pa.repeat(now, kept.num_rows))
        ctx.view("seen").put(seen)
        yield kept.select(self._columns.output_names)


def first_of_each(groups: Codes, times: Codes, within_us: int) -> Codes:
    """The first row of each group, the first one that is later by more than a duration, and so on.

    Rows are arranged by group and time. The places of the chosen ones are returned in order.
    """
    if not len(groups):
        return np.empty(0, dtype=np.int64)
    begins = np.append(True, groups[1:] != groups[:-1])
    starts = np.flatnonzero(begins)
    sizes = np.diff(starts, append=len(groups))
    ends = np.repeat(starts + sizes, sizes)
    chosen = [starts]
    while len(chosen[-1]):
        limits = add_us(times[chosen[-1]], within_us)
        goes_on = times[ends[chosen[-1]] - 1] > limits
        last = chosen[-1][goes_on]
        chosen.append(first_not_less(times, last + 1, ends[last], limits[goes_on] + 1))
    return np.sort(np.concatenate(chosen))


def first_not_less(values: Codes, low: Codes, high: Codes, targets: Codes) -> Codes:
    """For each target, the first place from `low` on at which values, sorted up to `high`, are not less."""
    low, high = low.copy(), high.copy()
    while True:
        is_open = np.flatnonzero(low < high)
        if not len(is_open):
            return low
        middle = (low[is_open] + high[is_open]) // 2
        is_less = values[middle] < targets[is_open]
        low[is_open[is_less]] = middle[is_less] + 1
        high[is_open[~is_less]] = middle[~is_less]
