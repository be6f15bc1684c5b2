"""What operator code holds to read and write a `TimeKeyTable`: by time, by key and time, uncached.

The three views are windows on the same rows: what one writes the others see at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lakestate.tables.event_time import EventTimeLike
from lakestate.tables.time_key.rows import Rows, TimeKeyRows


class _AppendedView:
    """What all views of the rows can do."""

    def __init__(self, rows: TimeKeyRows) -> None:
        self._rows = rows

    def insert(self, rows: Rows) -> None:
        """Append rows. Equal rows are all kept; rows that are dead already are not stored."""
        self._rows.insert(rows)

    def expire(self, before: EventTimeLike) -> None:
        """Drop rows with a time before this one, for good: also such rows that come later."""
        self._rows.expire(before)

    def min_time(self) -> int | None:
        """The earliest time of a row, in microseconds since 1970, or None if there is no row."""
        return self._rows.min_time()

    def count(self) -> int:
        """The number of rows."""
        return self._rows.count()

    def scan(self) -> Iterator[pa.RecordBatch]:
        """All rows, keys then values, some at a time, in no particular order."""
        return self._rows.scan()


class TimeView(_AppendedView):
    """Rows by time. Times are datetimes, or microseconds since 1970."""

    def rows_between(self, start: EventTimeLike | None, end: EventTimeLike | None) -> pa.Table:
        """Rows with start <= time < end, in order of time. None leaves a side open."""
        return self._rows.rows_between(start, end)


class KeyTimeView(_AppendedView):
    """Rows by key and time. Times are datetimes, or microseconds since 1970."""

    def rows_of(
        self, keys: Rows, start: EventTimeLike | None = None, end: EventTimeLike | None = None
    ) -> pa.Table:
        """Rows of the given keys with start <= time < end, by key as asked and then by time.

        The first column, `__query`, says which row of `keys` a row belongs to, counted from 0.
        """
        return self._rows.rows_of(keys, start, end)


class UncachedTimeView(_AppendedView):
    """Rows that are rarely read: kept as they came until another view searches, or the checkpoint."""


class TimeKeyView(TimeKeyRows):
    """One subtask's rows of a `TimeKeyTable`; ask it for the view that fits the work.

    >>> import lakestate.tables.time_key.table as time_key
    >>> from lakestate.ambient import SystemAmbient
    >>> from lakestate.protocol.metadata import TableFiles
    >>> from lakestate.protocol.values import TaskInfo
    >>> from lakestate.storage import open_store
    >>> from lakestate.tables.context import TableContext
    >>> from lakestate.job.objects import JobObjects
    >>> table = time_key.TimeKeyTable("clicks", key="user string", value="page string, ts timestamp")
    >>> context = TableContext(TaskInfo("job", "op"), JobObjects(open_store("memory://docs-time-key"), "job"),
    ...                        cache=None, ambient=SystemAmbient(), watermark_us=None, now_us=0)
    >>> view = table.open_view(TableFiles("clicks", table.table_type), context)
    >>> view.by_time.insert(pa.table({"user": ["ann", "bob", "ann"], "page": ["/a", "/b", "/c"],
    ...                               "ts": pa.array([30, 10, 20], pa.timestamp("us", tz="UTC"))}))
    >>> view.by_time.rows_between(10, 30)["page"].to_pylist()
    ['/b', '/c']
    >>> view.by_key.rows_of(pa.table({"user": ["eve", "ann"]})).select(["__query", "page"]).to_pydict()
    {'__query': [1, 1], 'page': ['/c', '/a']}
    >>> view.by_time.expire(20)
    >>> view.by_time.min_time(), [batch.num_rows for batch in view.uncached.scan()]
    (20, [2])
    """

    @property
    def by_time(self) -> TimeView:
        """For work on spans of time: windows, timers."""
        return TimeView(self)

    @property
    def by_key(self) -> KeyTimeView:
        """For work on the rows of some keys: joins."""
        return KeyTimeView(self)

    @property
    def uncached(self) -> UncachedTimeView:
        """For rows that are written now and read rarely."""
        return UncachedTimeView(self)
