"""Searching runs: every way of searching gives the place that a plain search gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakestate.tables.keyed.table import KeyedTable
from lakestate.tables.runs import lookup
from lakestate.tables.runs.lookup import HashedKeys, Query, positions
from lakestate.tables.runs.run import BUCKET_ROWS, BUCKETS_AFTER, KeyBuckets, Run, Searches

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


@pytest.mark.parametrize("count", [1, 15, 16, 17, 1000, 70_000])
@given(seed=st.integers(0, 2**32), low=st.sampled_from([0, 2**63 - 5]), spread=st.sampled_from([2**63, 2000]))
@settings(max_examples=25)
def test_searching_buckets_finds_the_same_places(count: int, seed: int, low: int, spread: int) -> None:
    rng = np.random.default_rng(seed)
    keys = np.sort(rng.integers(low, low + spread, count, dtype=np.uint64))
    others = rng.integers(0, 2**64 - 1, 100, dtype=np.uint64, endpoint=True)
    between = rng.integers(keys[0], keys[-1], 100, dtype=np.uint64, endpoint=True)
    ends = np.array([0, 2**64 - 1], dtype=np.uint64)
    asked = np.sort(np.concatenate([keys[:: 1 + count // 500], between, others, ends, keys[[0, -1]]]))
    run = run_of(keys)
    buckets = KeyBuckets.of_keys(keys)
    if buckets is None:
        assert count / spread > 1, "keys that spread evenly have buckets"
        return
    found = lookup._search_buckets(run, buckets, asked)
    assert found.tolist() == np.searchsorted(keys, asked).tolist()
    assert buckets.starts[[0, -1]].tolist() == [0, count]
    assert len(buckets.starts) < 2 + 2 * max(1, count // BUCKET_ROWS)


def test_keys_that_are_not_spread_evenly_have_no_buckets() -> None:
    near, far = np.arange(10_000, dtype=np.uint64), np.array([2**64 - 1], dtype=np.uint64)
    keys = np.concatenate([near, far])
    assert KeyBuckets.of_keys(keys) is None
    searches = Searches(keys)
    assert [searches.count(10_000) for _ in range(3)] == [None] * 3


def test_a_run_that_is_searched_often_gets_buckets_that_others_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "SAMPLED_RUN_ROWS", 0)
    count = 6400
    keys = np.sort(np.random.default_rng(1).integers(0, 2**64, count, dtype=np.uint64))
    run = run_of(keys).build_index()
    asked = keys[::100]
    assert run.searches.count(0) is None
    for _ in range(1 + count // BUCKETS_AFTER // len(asked)):
        twin = run.with_hold(object())
        assert lookup._lower_bound(twin, asked).tolist() == list(range(0, count, 100))
    buckets = run.searches.count(0)
    assert buckets is not None
    assert run.with_hold(None).searches.count(1) is buckets
    assert lookup._lower_bound(run, asked).tolist() == list(range(0, count, 100))
    part = run.slice(1000, 3000)
    assert part.searches.count(0) is None, "places in a part are others"
    assert lookup._lower_bound(part, keys[1000:3000]).tolist() == list(range(2000))


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
