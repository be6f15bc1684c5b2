"""Results before and after an epoch as the rows that an operator yields."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakestate.row_kind import AFTER, BEFORE, CHANGE, DELETE, INSERT


def change_rows(
    before: pa.Table, after: pa.Table, was: pa.Array, is_: pa.Array, differs: pa.Array
) -> pa.Table:
    """The changes between two aligned tables: row i was there, is there, and differs or not.

    A row of an update before it comes ahead of all rows after, so that whoever applies them in order
    takes back first.
    """
    stays = pc.and_(pc.and_(was, is_), differs)
    pieces = [
        (DELETE, before.filter(pc.and_not(was, is_))),
        (BEFORE, before.filter(stays)),
        (AFTER, after.filter(stays)),
        (INSERT, after.filter(pc.and_not(is_, was))),
    ]
    return pa.concat_tables(
        [rows.append_column(CHANGE, pa.array([word] * rows.num_rows, pa.string())) for word, rows in pieces]
    )
