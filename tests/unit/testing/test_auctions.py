"""The auction house: the same rows for the same seed, in any order, and plausible ones."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakestate.errors import InvalidInputError
from lakestate.testing.auctions import DISORDER_US, AuctionHouse, AuctionKind

ROWS = 50_000


GOLDEN = [
    {
        "auction": 8_050_873,
        "bidder": 1419,
        "price": 16_500,
        "channel": "web",
        "ts": datetime(2026, 1, 1, 3, 43, 39, 971_012, UTC),
    },
    {
        "id": 1000,
        "item": "lamp",
        "seller": 44,
        "category": 7,
        "reserve": 1_267_300,
        "expires": datetime(2026, 1, 1, 0, 0, 34, 808_261, UTC),
        "ts": datetime(2026, 1, 1, 0, 0, 1, 665_200, UTC),
    },
    {
        "id": 77,
        "name": "Ivo Costa",
        "email": "ivo.costa.77@example.com",
        "city": "Essen",
        "ts": datetime(2026, 1, 1, 0, 0, 0, 385_000, UTC),
    },
]


def times_us(batch: pa.RecordBatch) -> np.ndarray:
    return batch["ts"].cast(pa.int64()).to_numpy()


@given(
    kind=st.sampled_from(AuctionKind),
    seed=st.integers(0, 2**64),
    start=st.integers(0, 2**40),
    cuts=st.lists(st.integers(0, 200), min_size=2, max_size=5),
)
def test_rows_do_not_depend_on_how_they_are_cut(
    kind: AuctionKind, seed: int, start: int, cuts: list[int]
) -> None:
    house, ends = AuctionHouse(seed), [start + cut for cut in sorted(cuts)]
    parts = [house.rows(kind, first, last) for first, last in pairwise(ends)]
    whole = pa.Table.from_batches([house.rows(kind, ends[0], ends[-1])])
    assert pa.Table.from_batches(parts).combine_chunks().equals(whole)


@pytest.mark.parametrize("kind", AuctionKind)
def test_rows_have_the_columns_of_their_kind_and_no_nulls(kind: AuctionKind) -> None:
    rows = AuctionHouse().rows(kind, 0, 1000)
    assert rows.schema == kind.schema
    assert [column.null_count for column in rows.columns] == [0] * rows.num_columns


def test_another_seed_gives_other_rows() -> None:
    assert not AuctionHouse(1).rows("bids", 0, 100).equals(AuctionHouse(2).rows("bids", 0, 100))


def test_a_given_seed_gives_these_rows_for_ever() -> None:
    bid = AuctionHouse(42).rows("bids", 123_456_789, 123_456_790)
    auction = AuctionHouse(42).rows("auctions", 1_000, 1_001)
    person = AuctionHouse(42).rows("persons", 77, 78)
    assert [rows.to_pylist()[0] for rows in (bid, auction, person)] == GOLDEN


class TestBids:
    bids = AuctionHouse(3).rows("bids", 0, ROWS)

    def test_no_bid_is_older_than_the_newest_before_it_by_the_bound(self) -> None:
        times = times_us(self.bids)
        behind = np.maximum.accumulate(times) - times
        assert 0.9 * DISORDER_US < behind.max() < DISORDER_US

    def test_every_bid_is_after_the_person_and_the_auction_that_it_names(self) -> None:
        house = AuctionHouse(3)
        for kind, column in (("persons", "bidder"), ("auctions", "auction")):
            named = self.bids[column].to_numpy()
            known = times_us(house.rows(kind, 0, int(named.max()) + 1))
            assert named.min() >= 0
            assert (known[named] <= times_us(self.bids)).all()

    def test_a_twelfth_of_the_bidders_makes_more_than_half_of_the_bids(self) -> None:
        counts = np.sort(np.unique(self.bids["bidder"].to_numpy(), return_counts=True)[1])[::-1]
        assert counts[: len(counts) // 12].sum() > ROWS / 2

    def test_prices_are_whole_cents_within_their_bounds(self) -> None:
        assert pc.min_max(self.bids["price"]).as_py() == {"min": 100, "max": 1_267_300}


@pytest.mark.parametrize("kind", ["persons", "auctions"])
def test_persons_and_auctions_come_in_order_of_time(kind: str) -> None:
    assert (np.diff(times_us(AuctionHouse(3).rows(kind, 0, 1000))) > 0).all()


def test_an_unknown_kind_and_a_range_that_is_none_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="expected persons, auctions, bids"):
        AuctionHouse().rows("items", 0, 1)
    for start, stop in ((-1, 1), (2, 1)):
        with pytest.raises(InvalidInputError, match="not a range of rows"):
            AuctionHouse().rows("bids", start, stop)
