"""The newest stored row of each key, dead or alive: whether it is there, what it says, and its time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lakestate.tables.runs.lookup import ABSENT, HashedKeys, positions
from lakestate.tables.runs.run import Run


@dataclass(frozen=True, slots=True)
class NewestRows:
    """One entry for each key, in the order in which keys were given."""

    is_stored: np.ndarray
    is_removed: np.ndarray
    """Whether the row marks its key as removed."""
    times_us: np.ndarray
    """The time by which it expires; of a key without a row, none."""


def newest_rows(runs: Iterable[Run], keys: HashedKeys) -> NewestRows:
    """Look keys up in runs, newest first, without regard to removal and expiry."""
    query, count = keys.query(), len(keys.keys)
    is_stored, is_removed = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
    times_us = np.zeros(count, dtype=np.int64)
    left = np.arange(count)
    for run in runs:
        places = positions(run, query.take(left))
        hit = np.flatnonzero(places != ABSENT)
        found, there = keys.order[left[hit]], places[hit]
        is_stored[found] = True
        removed = run.removed_at(there)
        is_removed[found] = False if removed is None else removed
        times_us[found] = 0 if run.times_us is None else run.times_us[there]
        left = np.delete(left, hit)
    return NewestRows(is_stored, is_removed, times_us)
