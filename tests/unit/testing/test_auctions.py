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
from lakestate.testing.auctions import (
    AUCTION_OPEN_MAX_US,
    AUCTION_OPEN_MIN_US,
    DISORDER_US,
    START_US,
    AuctionHouse,
    AuctionKind,
)

ROWS = 50_000


GOLDEN = [
    {
        "auction": 8_042_046,
        "bidder": 1419,
        "price": 21_700,
        "channel": "channel-34",
        "url": "https://www.example.com/music/compact/cream/item.htm?query=1&channel_id=56502658",
        "ts": datetime(2026, 1, 1, 3, 43, 39, 971_012, UTC),
        "extra": "its scratch ceramic good complete clean very from sold as with no sold brass original t",
    },
    {
        "id": 1000,
        "item": "lamp",
        "description": "to no kept once no sold brass ceramic and its unused original perfect with two from "
        "collected on complete origina",
        "initial_bid": 1_228_900,
        "reserve": 6_297_800,
        "ts": datetime(2026, 1, 1, 0, 0, 1, 665_200, UTC),
        "expires": datetime(2026, 1, 1, 0, 0, 7, 452_098, UTC),
        "seller": 44,
        "category": 12,
        "extra": "brass from once new from complete original the in no rather in the a copper one brass and "
        "paint once pick unused glass wheel very wood from at the clean as scratch rather price brass "
        "scratch complete of price good in two pick two as the",
    },
    {
        "id": 77,
        "name": "Ivo Costa",
        "email": "ivo.costa.77@example.com",
        "credit_card": "3989 8120 1197 2714",
        "city": "San Francisco",
        "state": "CA",
        "ts": datetime(2026, 1, 1, 0, 0, 0, 385_000, UTC),
        "extra": "case from one well on box with one the complete good box ceramic kept its pick unu",
    },
]


def times_us(batch: pa.RecordBatch, column: str = "ts") -> np.ndarray:
    return batch[column].cast(pa.int64()).to_numpy()


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


@pytest.mark.parametrize("kind", AuctionKind)
def test_chosen_columns_are_those_of_whole_rows(kind: AuctionKind) -> None:
    whole = AuctionHouse(4).rows(kind, 100, 400)
    for names in ([name] for name in kind.schema.names):
        assert AuctionHouse(4).rows(kind, 100, 400, names).equals(whole.select(names))
    backwards = kind.schema.names[::-1]
    assert AuctionHouse(4).rows(kind, 100, 400, backwards).equals(whole.select(backwards))


def test_events_are_numbered_in_rounds_of_a_person_three_auctions_and_46_bids() -> None:
    house = AuctionHouse(event_us=1_000)
    for events in (0, 1, 2, 4, 5, 49, 50, 51, 1234):
        rows = [kind.rows_in(events) for kind in AuctionKind]
        assert sum(rows) == events
        for kind, count in zip(("persons", "auctions"), rows, strict=False):
            numbers = (times_us(house.rows(kind, 0, count + 1)) - START_US) // 1_000
            assert numbers[:-1].max(initial=-1) < events <= numbers[-1]
    # Until the first bid is older than a bid can be, the place of a bid is hidden by its delay.
    first, last = times_us(house.rows("bids", 0, 1)), times_us(house.rows("bids", 46_000, 46_001))
    assert 0 <= first[0] - START_US - 4_000 < DISORDER_US
    assert 0 <= last[0] - START_US - 50_004_000 < DISORDER_US


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
        assert pc.min_max(self.bids["price"]).as_py() == {"min": 100, "max": 81_100_900}

    @pytest.mark.parametrize("event_us", [1, 100, 10_000, 1_000_000])
    def test_one_hot_auction_after_the_other_gets_about_half_of_the_bids(self, event_us: int) -> None:
        bids = AuctionHouse(3, event_us).rows("bids", 0, ROWS, ["auction"])["auction"].to_numpy()
        hot = max(10, 2_000_000 * 3 // (50 * event_us))
        assert 0.5 <= (bids % hot == 0).mean() < 0.65

    def test_half_of_them_come_through_known_channels_and_most_others_have_a_channel_id(self) -> None:
        is_known = pc.is_in(self.bids["channel"], pa.array(["Google", "Facebook", "Baidu", "Apple"]))
        has_id = pc.match_substring(self.bids["url"], "&channel_id=")
        assert 0.48 < pc.mean(is_known).as_py() < 0.52
        assert pc.mean(has_id.filter(is_known)).as_py() == 0
        assert 0.85 < pc.mean(has_id.filter(pc.invert(is_known))).as_py() < 0.95

    def test_the_path_of_a_url_has_three_parts_and_a_page(self) -> None:
        parts = pc.split_pattern(self.bids["url"], "/")
        assert pc.unique(pc.list_value_length(parts)).to_pylist() == [7]
        assert pc.count_distinct(pc.list_element(parts, 3)).as_py() == 8

    def test_about_a_quarter_of_the_bidders_is_new(self) -> None:
        bids = AuctionHouse(3, 10_000).rows("bids", ROWS, 2 * ROWS, ["bidder"])
        newest = np.arange(ROWS, 2 * ROWS) // 46
        assert 0.24 < (newest - bids["bidder"].to_numpy() < 40).mean() < 0.28


class TestAuctions:
    @pytest.mark.parametrize("event_us", [100, 10_000])
    def test_some_bids_are_after_the_end_of_their_auction_and_most_are_before(self, event_us: int) -> None:
        house = AuctionHouse(3, event_us)
        bids = house.rows("bids", 0, 2 * ROWS, ["auction", "ts"])
        auctions = house.rows("auctions", 0, 2 * ROWS * 3 // 46 + 3)
        ends = times_us(auctions, "expires")[bids["auction"].to_numpy()]
        assert 0.01 < (times_us(bids) > ends).mean() < 0.3

    def test_they_are_open_within_their_bounds(self) -> None:
        auctions = AuctionHouse(3).rows("auctions", 0, ROWS)
        open_us = times_us(auctions, "expires") - times_us(auctions)
        assert AUCTION_OPEN_MIN_US <= open_us.min() < AUCTION_OPEN_MIN_US + 10_000
        assert AUCTION_OPEN_MAX_US - 10_000 < open_us.max() <= AUCTION_OPEN_MAX_US

    def test_the_reserve_is_more_than_the_initial_bid(self) -> None:
        auctions = AuctionHouse(3).rows("auctions", 0, 1000)
        assert pc.all(pc.greater(auctions["reserve"], auctions["initial_bid"])).as_py()

    def test_every_category_has_its_share(self) -> None:
        found = pc.value_counts(AuctionHouse(3).rows("auctions", 0, 10_000)["category"]).to_pylist()
        assert sorted(each["values"] for each in found) == [10, 11, 12, 13, 14]
        assert min(each["counts"] for each in found) > 1_800


def test_persons_live_in_these_states() -> None:
    states = AuctionHouse(3).rows("persons", 0, 1000)["state"]
    assert sorted(pc.unique(states).to_pylist()) == ["AZ", "CA", "ID", "OR", "WA", "WY"]


@pytest.mark.parametrize(
    ("kind", "least", "most"), [("persons", 180, 240), ("auctions", 400, 520), ("bids", 150, 200)]
)
def test_rows_are_about_as_wide_as_those_of_nexmark(kind: str, least: int, most: int) -> None:
    assert least < AuctionHouse(3).rows(kind, 0, 10_000).nbytes / 10_000 < most


@pytest.mark.parametrize("kind", ["persons", "auctions"])
def test_persons_and_auctions_come_in_order_of_time(kind: str) -> None:
    assert (np.diff(times_us(AuctionHouse(3).rows(kind, 0, 1000))) > 0).all()


def test_an_unknown_kind_or_column_and_a_range_that_is_none_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="expected persons, auctions, bids"):
        AuctionHouse().rows("items", 0, 1)
    for start, stop in ((-1, 1), (2, 1)):
        with pytest.raises(InvalidInputError, match="not a range of rows"):
            AuctionHouse().rows("bids", start, stop)
    with pytest.raises(InvalidInputError, match=r"bids have no such column: bider; .*did you mean bidder\?"):
        AuctionHouse().rows("bids", 0, 1, ["bider"])
    for names, found in (([], "none"), (["ts", "ts"], "ts, ts")):
        with pytest.raises(InvalidInputError, match=f"not a choice of columns; found {found}"):
            AuctionHouse().rows("bids", 0, 1, names)
    with pytest.raises(InvalidInputError, match="events cannot be so close; found 0"):
        AuctionHouse(event_us=0)
