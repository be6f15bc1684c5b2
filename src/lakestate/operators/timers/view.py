"""`TimersView`: what operator code holds to set timers, and where the runtime takes those that are due."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError
from lakestate.tables.arrow.conform import conform_columns
from lakestate.tables.arrow.grouping import number_groups
from lakestate.tables.runs.layout import QUERY, Rows
from lakestate.tables.time_key.view import TimeKeyView

AT = "at"
"""The column that holds the time of a timer."""


class TimersView(TimeKeyView):
    """One subtask's timers."""

    _now_us: int | None = None
    _due: list[pa.Table]
    _goes_back = False

    def begin(self, now_us: int | None, *, goes_back: bool) -> None:
        """Say what time it is: what is due by it fires in this epoch.

        `goes_back`: whether a later epoch may have an earlier time.
        """
        self._now_us = now_us
        self._due = []
        self._goes_back = goes_back

    def set(self, rows: Rows, at: str = AT) -> None:
        """Set a timer for each row, at the time in the column `at`. Setting the same one twice is the same.

        Null is not a time, and is refused. A time that has passed is due in this epoch.
        """
        table = self._timers(rows, at)
        if not table.num_rows:
            return
        if self._now_us is None:
            self.insert(table)
            return
        is_due = pc.less_equal(table[AT].cast(pa.int64()), self._now_us)
        self._due.append(table.filter(is_due))
        self.insert(table.filter(pc.invert(is_due)))

    def cancel(self, keys: Rows) -> None:
        """Remove all timers of the given keys that have not fired."""
        self.delete(keys)
        names = list(self._layout.key_names)
        if self._due and keys.num_rows:
            asked = pa.table([keys[name] for name in names], names=names)
            # A join treats no two nulls as equal, and null is a key.
            left = [due.filter(pc.invert(_is_among(due.select(names), asked))) for due in self._due]
            self._due = left

    def take_due(self, *, all_of_them: bool) -> pa.Table:
        """Remove the timers that are due and return them, in order of time. `all_of_them`: at any time."""
        due, self._due = self._due, []
        if all_of_them:
            due.append(self.rows_between(None, None))
            self.delete(due[-1].select(list(self._layout.key_names)))
        elif self._now_us is not None:
            due.append(self.rows_between(None, self._now_us + 1))
            self._remove_until(self._now_us, due[-1])
        found = pa.concat_tables([self._schema.empty_table(), *(each.cast(self._schema) for each in due)])
        if not found.num_rows:
            return found
        unique = found.group_by(found.column_names, use_threads=False).aggregate([])
        return unique.sort_by([(AT, "ascending")])

    def _remove_until(self, now_us: int, due: pa.Table) -> None:
        if not due.num_rows:
            return
        if not self._goes_back:
            self.expire(now_us + 1)
            return
        # After the clock was set back, a time that has passed comes again: nothing may expire by time.
        keys = due.select(list(self._layout.key_names))
        keys = keys.group_by(keys.column_names, use_threads=False).aggregate([])
        left = self.rows_of(keys, now_us + 1, None).drop_columns([QUERY])
        self.delete(keys)
        self.insert(left)

    @property
    def _schema(self) -> pa.Schema:
        return pa.schema([field.with_nullable(True) for field in self._layout.row_schema])

    def _timers(self, rows: Rows, at: str) -> pa.Table:
        names = rows.schema.names
        if at not in names:
            raise InvalidInputError(
                "timers are set at the time in a column that the rows do not have",
                object_name=at,
                found=", ".join(names),
            )
        column = rows[at] if isinstance(rows, pa.Table) else pa.chunked_array([rows.column(at)])
        if column.null_count:
            raise InvalidInputError(
                "a timer has no time",
                object_name=at,
                found=f"null in {column.null_count:,} of {rows.num_rows:,} rows",
                action="filter such rows out before you set timers",
            )
        fields = [field for field in self._schema if field.name != AT]
        columns = dict(zip([field.name for field in fields], conform_columns(rows, fields, "set timers"),
                           strict=True))  # fmt: skip
        columns[AT] = column.cast(self._schema.field(AT).type)
        return pa.table({field.name: columns[field.name] for field in self._schema})


def _is_among(rows: pa.Table, asked: pa.Table) -> pa.Array:
    """Which rows equal one of the others."""
    _, numbers = number_groups(pa.concat_tables([rows, asked.cast(rows.schema)]))
    return pa.array(np.isin(numbers[: rows.num_rows], numbers[rows.num_rows :]))
