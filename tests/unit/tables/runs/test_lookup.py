"""Searching runs: every way of searching gives the place that a plain search gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakestate.tables.keyed.table import KeyedTable
from lakestate.tables.runs import lookup
from lakestate.tables.runs.lookup import HashedKeys, Query, positions
from lakestate.tables.runs.run import Run

LAYOUT = KeyedTable("t", key="k bigint", value="n bigint").layout


def run_of(keys: np.ndarray) -> Run:
    count = len(keys)
    columns = [
        pa.array(keys),
        pa.array(np.arange(count)),
        pa.array(np.arange(count)),
        pa.array(np.zeros(count, bool)),
    ]
    return Run(pa.Table.from_arrays(columns, schema=LAYOUT.schema), LAYOUT)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 128, 1000, 4097])
@given(seed=st.integers(0, 2**32), spread=st.sampled_from([2**64 - 1, 2000, 3]))
def test_searching_samples_first_finds_the_same_places(count: int, seed: int, spread: int) -> None:
    rng = np.random.default_rng(seed)
    keys = np.sort(rng.integers(0, spread, count, dtype=np.uint64))
    ends = np.array([0, 2**64 - 1], dtype=np.uint64)
    asked = np.concatenate([keys, rng.integers(0, spread, 100, dtype=np.uint64), ends])
    asked.sort()
    run = run_of(keys)
    plain = np.searchsorted(keys, asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookup, "SAMPLED_RUN_ROWS", 0)
        patch.setattr(lookup, "PART_KEYS", 1000)
        assert lookup._lower_bound(run, asked).tolist() == plain.tolist()


def test_a_key_is_found_among_others_with_its_hash() -> None:
    run = run_of(np.full(100, 7, dtype=np.uint64))
    query = Query(np.array([7, 7, 7], dtype=np.uint64), None, [pa.array([99, 0, 100])])
    assert positions(run, query).tolist() == [99, 0, lookup.ABSENT]


def test_nothing_is_found_in_an_empty_run() -> None:
    query = Query(np.array([1], dtype=np.uint64), None, [pa.array([1])])
    assert positions(run_of(np.array([], dtype=np.uint64)), query).tolist() == [lookup.ABSENT]


def test_rows_of_a_run_in_several_chunks_are_taken_in_the_order_of_their_places() -> None:
    rows = run_of(np.arange(100, dtype=np.uint64)).rows
    run = Run(pa.concat_tables([rows.slice(0, 30), rows.slice(30, 1), rows.slice(31)]), LAYOUT)
    for places in ([], [99, 0, 30, 31, 29, 30], [0, 29, 30, 31, 99], [70, 70, 3]):
        assert run.take("n", pa.array(places, pa.int64())).to_pylist() == places


def test_many_keys_of_one_routing_key_are_found_in_a_run_of_several_chunks() -> None:
    table = KeyedTable("t", key="u string, i bigint", value="n bigint", route_by=["u"])
    layout, count = table.layout, 500
    columns = [pa.array(["x"] * count), pa.array(range(count))]
    routing, fine = layout.hashes(columns)
    assert fine is not None
    values = [pa.array(range(count)), pa.array(np.zeros(count, bool))]
    bag = pa.Table.from_arrays([pa.array(routing), pa.array(fine), *columns, *values], schema=layout.schema)
    rows = bag.take(pa.array(np.argsort(fine)))
    run = Run(pa.concat_tables([rows.slice(0, 200), rows.slice(200)]), layout)
    asked = pa.array(np.random.default_rng(1).permutation(2 * count)[:count])
    query = HashedKeys.of(layout, [pa.array(["x"] * count), asked]).query()
    places = positions(run, query)
    there = [key if key < count else None for key in query.columns[1].to_pylist()]
    assert [None if place == lookup.ABSENT else rows["i"][place].as_py() for place in places] == there
