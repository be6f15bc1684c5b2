"""The rows of an epoch by key: the last one of each counts, and which rows of a file it replaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.row_kind import BEFORE, CHANGE, DELETE
from lakestate.sinks.keyed_rows import require_changes
from lakestate.tables.hashing.routing import routing_keys

_NUMBER = "__number"


@dataclass(frozen=True)
class ChangedKeys:
    """What an epoch does to keys."""

    key: tuple[str, ...]
    rows: pa.Table
    """The row that each key has from now on; without those that are deleted."""
    keys: pa.Table
    """All keys that change, each once."""
    hashes: npt.NDArray[np.uint64]
    known: frozenset[tuple[object, ...]]

    @classmethod
    def of(cls, rows: pa.Table, key: Sequence[str]) -> ChangedKeys:
        """The changes in rows of one epoch, in order. With a column `_change`, they may delete.

        >>> rows = pa.table({"k": [1, 2, 1], "n": [10, 20, 30]})
        >>> ChangedKeys.of(rows, ["k"]).rows.to_pylist()
        [{'k': 2, 'n': 20}, {'k': 1, 'n': 30}]
        """
        is_kept = pa.chunked_array([pa.repeat(True, len(rows))])
        if CHANGE in rows.column_names:
            rows = rows.filter(pc.not_equal(require_changes(rows[CHANGE]), BEFORE))
            is_kept = pc.not_equal(rows[CHANGE], DELETE)
            rows = rows.drop_columns([CHANGE])
        last = _last_of_each_key(rows, key)
        rows, is_kept = rows.take(last), is_kept.take(last)
        keys = rows.select(list(key)).combine_chunks()
        return cls(tuple(key), rows.filter(is_kept), keys, _hashes(keys), frozenset(_tuples(keys)))

    def is_replaced(self, keys: pa.Table) -> npt.NDArray[np.bool_]:
        """Whether each row of a file, of which these are the keys, is replaced or deleted."""
        keys = keys.select(list(self.key)).cast(self.keys.schema)
        found = np.isin(_hashes(keys), self.hashes)
        suspects = np.flatnonzero(found)
        # Different keys may have the same hash.
        for number, each in zip(suspects, _tuples(keys.take(pa.array(suspects))), strict=True):
            found[number] = each in self.known
        return found


def _last_of_each_key(rows: pa.Table, key: Sequence[str]) -> pa.Array:
    """The numbers of the rows that come last of their key, in order."""
    numbered = rows.select(list(key)).append_column(_NUMBER, pa.array(np.arange(len(rows))))
    last = numbered.group_by(list(key), use_threads=False).aggregate([(_NUMBER, "max")])
    return pa.array(np.sort(last[f"{_NUMBER}_max"].to_numpy()))


def _hashes(keys: pa.Table) -> npt.NDArray[np.uint64]:
    return routing_keys([column.combine_chunks() for column in keys.columns])


def _tuples(keys: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in keys.columns), strict=True))
