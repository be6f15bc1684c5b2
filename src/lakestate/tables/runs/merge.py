"""Merging runs: of several rows with the same key, the newest is kept.

All work is done on one slice of the key space at a time, so that memory depends on the slice and not on
the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.protocol.key_ranges import KEY_MAX, KeyRange
from lakestate.tables.arrow.ordering import stable_order
from lakestate.tables.arrow.wide_text import concat_rows, narrow_text_column
from lakestate.tables.runs.key_equality import same_keys
from lakestate.tables.runs.layout import HASH, KEY, RunLayout
from lakestate.tables.runs.run import Run

SLICE_ROWS = 512 * 1024


def merge_runs(runs: Sequence[Run], layout: RunLayout) -> Run:
    """All rows of runs given newest first, each key once."""
    present = [run for run in runs if len(run)]
    if len(present) == 1:
        return present[0]
    if not present:
        return Run(layout.schema.empty_table(), layout)
    rows = concat_rows([run.rows for run in present], layout.schema)
    return sort_keep_first(Run(rows, layout))


def merge_similar(runs: list[Run], merge: Callable[[list[Run]], Run]) -> None:
    """Merge the newest runs of a list while they are of similar size, as stored ones are.

    An epoch of many small batches then does not search many small runs.
    """
    while len(runs) > 1 and 2 * len(runs[0]) >= len(runs[1]):
        runs[:2] = [merge(runs[:2])]


def sort_keep_first(bag: Run) -> Run:
    """The rows of a bag sorted by key, the first of each key kept.

    A bag is a `Run` whose rows are not sorted yet.
    """
    order = _sort_order(bag)
    again = _same_as_previous(bag, order)
    return _take_rows(bag, order if again is None else order[~again])


def sort_keep_last(bag: Run, order: np.ndarray | None = None) -> Run:
    """The rows of a bag sorted by key, the last of each key kept.

    `order` sorts the routing keys, if it is already known.
    """
    order = _sort_order(bag, order)
    again = _same_as_previous(bag, order)
    if again is None:
        return _take_rows(bag, order)
    overwritten = np.append(again[1:], False)
    return _take_rows(bag, order[~overwritten])


def sort_keep_all(bag: Run) -> Run:
    """The rows of a bag sorted by key and then by time, all of them."""
    finer = [column for column in (bag.hashes, bag.times_us) if column is not None]
    return _take_rows(bag, stable_order(bag.keys, *finer))


def key_slices(runs: Sequence[Run], rows_max: int = SLICE_ROWS) -> Iterator[list[Run]]:
    """The runs cut at the same keys, so that each piece has about `rows_max` rows at most."""
    total = sum(len(run) for run in runs)
    if total <= rows_max:
        yield list(runs)
        return
    largest = max(runs, key=len)
    step = max(1, len(largest) * rows_max // total)
    cuts = np.unique(largest.keys[step::step])
    first = 0
    for cut in [*cuts.tolist(), KEY_MAX + 1]:
        if cut > first:
            keys = KeyRange(first, cut - 1)
            yield [run.clip_to(keys) for run in runs]
        first = cut


def _sort_order(bag: Run, known: np.ndarray | None = None) -> np.ndarray:
    """The order by hash. Equal hashes keep their order, because the first or last of a key is wanted."""
    finer = [] if bag.hashes is None else [bag.hashes]
    return stable_order(bag.keys, *finer, known=known)


def _same_as_previous(bag: Run, order: np.ndarray) -> np.ndarray | None:
    """Which rows, in this order, repeat the key of the row before. None if none does.

    If keys collide, `order` is changed in place so that equal keys are neighbours again.
    """
    repeats = _equal_hashes(bag, order)
    if not repeats.any():
        return None
    same = _same_neighbours(bag, order, repeats)
    if not np.array_equal(same, repeats):
        order[:] = _order_by_key(bag)
        same = _same_neighbours(bag, order, _equal_hashes(bag, order))
    return same


def _equal_hashes(bag: Run, order: np.ndarray) -> np.ndarray:
    equal = np.zeros(len(order), dtype=bool)
    sorted_keys = bag.keys[order]
    equal[1:] = sorted_keys[1:] == sorted_keys[:-1]
    if bag.hashes is not None:
        sorted_hashes = bag.hashes[order]
        equal[1:] &= sorted_hashes[1:] == sorted_hashes[:-1]
    return equal


def _same_neighbours(bag: Run, order: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """The candidates whose whole key equals that of the row before."""
    rows = np.flatnonzero(candidates)
    here = [pc.take(column, pa.array(order[rows])) for column in bag.key_columns]
    before = [pc.take(column, pa.array(order[rows - 1])) for column in bag.key_columns]
    same = np.zeros(len(order), dtype=bool)
    same[rows[same_keys(here, before)]] = True
    return same


def _order_by_key(bag: Run) -> np.ndarray:
    """Sorted by hash and then by the key columns themselves; newest first among equal keys."""
    names = [KEY, *([HASH] if bag.layout.has_fine_key else []), *bag.layout.key_names]
    keys = [(name, "ascending") for name in names]
    order: np.ndarray = pc.sort_indices(bag.rows.select(names), sort_keys=keys).to_numpy()
    return order.astype(np.int64)


def _take_rows(bag: Run, order: np.ndarray) -> Run:
    indices = pa.array(order)
    columns = [
        narrow_text_column(pc.take(bag.column(field.name), indices), field.type) for field in bag.rows.schema
    ]
    return Run(pa.Table.from_arrays(columns, schema=bag.rows.schema), bag.layout)
