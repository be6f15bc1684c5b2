"""Runs of a `TimeKeyTable`: which rows are in a span of time, and which belong to given keys.

Such a run is sorted by routing key, whole-key hash and event time, and holds every row it was given.
Nothing here loops over rows in Python, and nothing here opens a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError
from lakestate.protocol.values import TimeRange
from lakestate.tables.arrow.wide_text import concat_rows
from lakestate.tables.runs.key_equality import same_keys
from lakestate.tables.runs.layout import RunLayout
from lakestate.tables.runs.lookup import Query, first_places, key_spans, span_places
from lakestate.tables.runs.merge import SLICE_ROWS, sort_keep_all
from lakestate.tables.runs.run import Run

TIME_MIN_US = -(2**63)
TIME_MAX_US = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Event times from `first_us` up to, not including, `before_us`.

    >>> TimeSpan(10, 20).since(15), TimeSpan(10, 20).overlaps(TimeRange(20, 30))
    (TimeSpan(first_us=15, before_us=20), False)
    """

    first_us: int = TIME_MIN_US
    before_us: int = TIME_MAX_US + 1

    def since(self, floor_us: int | None) -> TimeSpan:
        """The part of the span that begins at `floor_us` or later."""
        if floor_us is None or floor_us <= self.first_us:
            return self
        return replace(self, first_us=floor_us)

    def overlaps(self, times: TimeRange | None) -> bool:
        """False if no row of a file with these times can be in the span."""
        return times is None or (self.first_us <= times.last_us and times.first_us < self.before_us)

    def covers(self, times: TimeRange | None) -> bool:
        """True if every row of a file with these times is in the span."""
        return times is not None and self.first_us <= times.first_us and times.last_us < self.before_us

    def places(self, run: Run) -> np.ndarray:
        """The positions of the rows of a run that are in the span."""
        times = event_times(run)
        return np.flatnonzero((times >= self.first_us) & (times < self.before_us))

    def earliest_us(self, run: Run) -> int | None:
        """The earliest time of a row of a run that is in the span, or None."""
        times = event_times(run)[self.places(run)]
        return int(times.min()) if len(times) else None


def event_times(run: Run) -> np.ndarray:
    """The event times of a run, in microseconds."""
    if run.times_us is None:
        raise InvalidInputError(
            "a table by time has no time column", object_name=f"table {run.layout.config.name}"
        )
    return run.times_us


def matches(run: Run, query: Query, span: TimeSpan) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a run that belong to keys of the query and are in a span.

    Returns two arrays of equal length: the position of each row, and the row of the query it belongs to.
    """
    found, low, high = key_spans(run, query.keys)
    low, high = _hash_spans(run, query, found, low, high)
    times = event_times(run)
    low = first_places(low, high, lambda places, _: times[places] < span.first_us)
    high = first_places(low, high, lambda places, _: times[places] < span.before_us)
    places, rows = span_places(low, high)
    rows = found[rows]
    # Rows of another key with the same hash are among them.
    same = same_keys(_take_columns(query.columns, rows), _take_columns(run.key_columns, places))
    return places[same], rows[same]


def order_by_time(groups: np.ndarray, times_us: np.ndarray) -> np.ndarray:
    """The order of rows by group, from 0, and then by time. Equal rows stay in their order.

    One number for both is sorted several times faster than two, above all if rows come in sorted pieces.

    >>> order_by_time(np.array([1, 0, 1]), np.array([5, 9, 4])).tolist()
    [1, 2, 0]
    """
    if not len(groups):
        return np.empty(0, dtype=np.int64)
    first_us = int(times_us.min())
    width = int(times_us.max()) - first_us + 1
    if (int(groups.max()) + 1) * width > TIME_MAX_US:
        return np.lexsort((times_us, groups))
    return np.argsort(groups * width + (times_us - first_us), kind="stable")


def merge_time_runs(runs: Sequence[Run], layout: RunLayout) -> Run:
    """All rows of runs or bags, in one run."""
    tables = [run.rows for run in runs if len(run)]
    if not tables:
        return Run(layout.schema.empty_table(), layout)
    return sort_keep_all(Run(concat_rows(tables, layout.schema), layout))


def rows_within(run: Run, span: TimeSpan) -> Run:
    """The rows of a run that are in a span."""
    places = span.places(run)
    if len(places) == len(run):
        return run
    return Run(run.rows.take(pa.array(places)), run.layout)


def merge_time_slices(
    runs: Sequence[Run],
    live_rows: Callable[[int, Run], Run],
    layout: RunLayout,
    rows_max: int = SLICE_ROWS,
) -> Iterator[Run]:
    """The runs merged into one, a piece of the key space at a time.

    `live_rows` takes the number of a run and a piece of it, and returns the rows of the piece that stay.
    """
    begins = [0] * len(runs)
    for ends in _cuts(runs, rows_max):
        pieces = [run.slice(begin, end) for run, begin, end in zip(runs, begins, ends, strict=True)]
        begins = ends
        whole = merge_time_runs([live_rows(number, piece) for number, piece in enumerate(pieces)], layout)
        if len(whole):
            yield whole


def _cuts(runs: Sequence[Run], rows_max: int) -> Iterator[list[int]]:
    """Where to cut each run so that the pieces between two cuts have about `rows_max` rows.

    Cuts are at a key and a time, not at a key alone: one busy key may have more rows than fit.
    """
    total = sum(len(run) for run in runs)
    if total > rows_max:
        largest = max(runs, key=len)
        step = max(1, len(largest) * rows_max // total)
        for place in range(step, len(largest), step):
            yield [_first_not_before(run, largest, place) for run in runs]
    yield [len(run) for run in runs]


def _first_not_before(run: Run, other: Run, place: int) -> int:
    """The first row of a run that does not come before one row of another run."""
    low, high = 0, len(run)
    for mine, theirs in zip(_order_columns(run), _order_columns(other), strict=True):
        value, span = theirs[place], mine[low:high]
        low, high = (
            low + int(np.searchsorted(span, value, side="left")),
            low + int(np.searchsorted(span, value, side="right")),
        )
    return low


def _order_columns(run: Run) -> list[np.ndarray]:
    hashes = [] if run.hashes is None else [run.hashes]
    return [run.keys, *hashes, event_times(run)]


def _hash_spans(
    run: Run, query: Query, found: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For the keys of the query that were found, the places in the run that have their whole hash."""
    hashes, wanted = run.hashes, query.hashes
    if hashes is None or wanted is None:
        return low, high
    wanted = wanted[found]
    low = first_places(low, high, lambda places, rows: hashes[places] < wanted[rows])
    return low, first_places(low, high, lambda places, rows: hashes[places] <= wanted[rows])


def _take_columns(columns: Sequence[pa.Array], rows: np.ndarray) -> list[pa.Array]:
    indices = pa.array(rows)
    return [pc.take(column, indices) for column in columns]
