"""`SortedRows`: rows in an order that becomes finer step by step, until no two different rows are tied.

Each step sorts only the rows that are still tied. Most orders are decided by their first columns, so the
columns that break ties, in the end all of them, are looked at for few rows or for none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestate.operators.selection.codes import Codes, order_codes, pack_codes


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Row numbers in order. A run is a stretch of rows that are tied so far."""

    rows: Codes
    begins_run: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, codes: Sequence[Codes]) -> SortedRows:
        """All rows in the order of codes, the most significant ones first."""
        count = len(codes[0])
        begins = np.zeros(count, dtype=bool)
        begins[:1] = True
        return cls(np.arange(count), begins).refine(lambda rows: list(codes))

    def refine(self, codes: Callable[[Codes], Sequence[Codes]]) -> SortedRows:
        """Sort the rows of each run. `codes` is given the numbers of the rows that are tied."""
        tied = np.flatnonzero(_is_tied(self.begins_run))
        if not len(tied):
            return self
        rows = self.rows[tied]
        runs: Codes = np.cumsum(self.begins_run[tied], dtype=np.int64)
        words = pack_codes([runs, *codes(rows)])
        order, begins = _sort_words([word for word, _ in words])
        new_rows, new_begins = self.rows.copy(), self.begins_run.copy()
        new_rows[tied] = rows[order]
        new_begins[tied] = begins
        return replace(self, rows=new_rows, begins_run=new_begins)

    def break_ties(self, table: pa.Table, *, nulls_first: bool = True) -> SortedRows:
        """Sort tied rows by all columns of their table, from left to right: ascending."""
        found = self
        for column in table.columns:
            if not _is_tied(found.begins_run).any():
                break
            found = found.refine(partial(_codes_at, column, nulls_first))
        return found

    def keep(self, flags: npt.NDArray[np.bool_]) -> SortedRows:
        """Some of the rows. Whole runs are kept or not."""
        return SortedRows(self.rows[flags], self.begins_run[flags])

    def begins_group(self, codes: Sequence[Codes]) -> npt.NDArray[np.bool_]:
        """Where a group begins: rows with the same codes, which were the first to sort by."""
        return _differs([code[self.rows] for code in codes])


def places_in(begins: npt.NDArray[np.bool_]) -> Codes:
    """The place of each row in its stretch, from 0."""
    return np.arange(len(begins)) - starts_of(begins)


def starts_of(begins: npt.NDArray[np.bool_]) -> Codes:
    """For each row, where its stretch begins."""
    starts = np.flatnonzero(begins)
    return np.repeat(starts, np.diff(starts, append=len(begins)))


def _codes_at(column: pa.ChunkedArray, nulls_first: bool, rows: Codes) -> list[Codes]:
    return order_codes(column.take(pa.array(rows)), descending=False, nulls_first=nulls_first)


def _sort_words(words: Sequence[Codes]) -> tuple[Codes, npt.NDArray[np.bool_]]:
    # Not stable: rows that are still tied are sorted by something else, or are the same.
    order = np.argsort(words[0])
    begins = _differs([words[0][order]])
    for word in words[1:]:
        tied = np.flatnonzero(_is_tied(begins))
        if not len(tied):
            break
        rows = order[tied]
        keys = [key for key, _ in pack_codes([np.cumsum(begins[tied]), word[rows]])]
        inner = np.argsort(keys[0]) if len(keys) == 1 else np.lexsort(keys[::-1])
        order[tied] = rows[inner]
        begins[tied] = _differs([key[inner] for key in keys])
    return order, begins


def _is_tied(begins: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which rows are in a stretch of more than one."""
    is_alone = begins.copy()
    is_alone[:-1] &= begins[1:]
    return ~is_alone


def _differs(arranged: Sequence[Codes]) -> npt.NDArray[np.bool_]:
    """Where a row differs from the one before it."""
    differs = np.zeros(len(arranged[0]), dtype=bool)
    differs[:1] = True
    for values in arranged:
        differs[1:] |= values[1:] != values[:-1]
    return differs
