"""The batch answers of Nexmark: the same always, and for the harder questions the same as plain Python's.

Also how the rows that a query has written become a result. No Spark here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import pyarrow as pa
import pytest
from examples.nexmark.job import AUCTION_OPEN_MAX, Feed
from tests.support.nexmark.answers import ALL_QUERIES, answer, rows_of, watermark
from tests.support.nexmark.output import Written, check_same, count_rows, result_of, sum_by

from lakestate.row_kind import RowKind, StreamKind
from lakestate.testing.auctions import AuctionKind

FEED = Feed(events=6_000, every="30 ms", seed=3)
SECOND = timedelta(seconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

BY_K = StreamKind(RowKind.UPSERT, ("k",))
CHANGES = StreamKind(RowKind.CHANGES, ("n",))

Row = dict[str, Any]


def rows(kind: str) -> list[Row]:
    return rows_of(FEED, AuctionKind(kind)).to_pylist()


def end_of(query: str) -> datetime:
    return watermark(query, {kind: rows_of(FEED, kind) for kind in AuctionKind})


def floor(time: datetime, seconds: int) -> datetime:
    return time - (time - EPOCH) % (seconds * SECOND)


def check(query: str, expected: list[Row]) -> None:
    check_same(count_rows(expected), answer(query, FEED))


@pytest.mark.parametrize("query", ALL_QUERIES)
def test_an_answer_has_rows_and_is_the_same_however_it_is_computed(query: str) -> None:
    check_same(count_rows(answer(query, FEED, threads=2).to_pylist()), answer(query, FEED))


def test_q5_names_the_auctions_with_the_most_bids_of_every_window() -> None:
    counts: dict[datetime, Counter[int]] = defaultdict(Counter)
    for bid in rows("bids"):
        for hop in range(5):
            counts[floor(bid["ts"], 2) - hop * 2 * SECOND][bid["auction"]] += 1
    expected = [
        {"window_start": start, "window_end": start + 10 * SECOND, "auction": auction, "bids": bids}
        for start, found in counts.items()
        for auction, bids in found.items()
        if bids == max(found.values()) and start + 10 * SECOND <= end_of("q5")
    ]
    check("q5", expected)


def bids_in_time() -> Iterator[tuple[Row, list[Row]]]:
    """Every auction that has bids in time, with them."""
    bids = defaultdict(list)
    for bid in rows("bids"):
        bids[bid["auction"]].append(bid)
    for auction in rows("auctions"):
        found = [bid for bid in bids[auction["id"]] if auction["ts"] <= bid["ts"] <= auction["expires"]]
        if found:
            yield auction, found


def test_q6_is_the_mean_of_the_last_ten_closed_auctions_of_a_seller() -> None:
    closed: dict[int, list[tuple[datetime, int, int]]] = defaultdict(list)
    for auction, bids in bids_in_time():
        if auction["expires"] < end_of("q6"):
            price = max(bid["price"] for bid in bids)
            closed[auction["seller"]].append((auction["expires"], auction["id"], price))
    last = {seller: [price for *_, price in sorted(found)[-10:]] for seller, found in closed.items()}
    assert max(map(len, last.values())) == 10
    check("q6", [{"seller": key, "mean_price": sum(prices) / len(prices)} for key, prices in last.items()])


def test_q9_is_the_highest_bid_and_of_equal_ones_the_earliest() -> None:
    expected = []
    for auction, bids in bids_in_time():
        best = min(bids, key=lambda bid: (-bid["price"], bid["ts"], bid["bidder"], bid["extra"]))
        won = {"bidder": best["bidder"], "price": best["price"]}
        expected.append(auction | won | {"bid_ts": best["ts"], "bid_extra": best["extra"]})
    check("q9", expected)


def test_q11_counts_the_bids_of_sessions() -> None:
    times = sorted((bid["bidder"], bid["ts"]) for bid in rows("bids"))
    expected = []
    for bidder, group in groupby(times, key=lambda each: each[0]):
        sessions: list[list[datetime]] = []
        for _, time in group:
            if not sessions or time >= sessions[-1][-1] + 10 * SECOND:
                sessions.append([])
            sessions[-1].append(time)
        expected += [
            {
                "bidder": bidder,
                "window_start": each[0],
                "window_end": each[-1] + 10 * SECOND,
                "bids": len(each),
            }
            for each in sessions
            if each[-1] + 10 * SECOND <= end_of("q11")
        ]
    assert len({row["bidder"] for row in expected}) < len(expected)
    check("q11", expected)


def test_no_auction_is_open_for_longer_than_its_bound() -> None:
    assert max(auction["expires"] - auction["ts"] for auction in rows("auctions")) <= AUCTION_OPEN_MAX


class TestResults:
    def test_rows_without_a_key_all_count(self) -> None:
        written = [Written(1, {"a": 1, "b": 2}), Written(2, {"b": 2, "a": 1})]
        assert result_of(written, StreamKind()) == {(("a", 1), ("b", 2)): 2}

    def test_of_rows_with_a_key_the_newest_counts(self) -> None:
        written = [Written(epoch, {"k": 1, "n": epoch}) for epoch in (2, 10, 9)]
        assert result_of(written, BY_K) == {(("k", 1), ("n", 10)): 1}

    def test_a_key_that_is_twice_in_an_epoch_has_no_newest_row(self) -> None:
        with pytest.raises(AssertionError, match="is twice in epoch 3"):
            result_of([Written(3, {"k": 1, "n": 1}), Written(3, {"k": 1, "n": 2})], BY_K)

    def test_changes_add_and_take_back(self) -> None:
        changes = [
            ("insert", 1),
            ("update_preimage", 1),
            ("update_postimage", 2),
            ("insert", 3),
            ("delete", 3),
        ]
        written = [Written(1, {"n": n, "_change": change}) for change, n in changes]
        assert result_of(written, CHANGES) == {(("n", 2),): 1}
        with pytest.raises(AssertionError, match="taken back, but never there"):
            result_of([*written, Written(2, {"n": 7, "_change": "delete"})], CHANGES)

    def test_rows_of_windows_add_up(self) -> None:
        windows = [{"bidder": 1, "start": start, "bids": 2} for start in (0, 10)]
        rows = count_rows([*windows, windows[0], {"bidder": 2, "start": 0, "bids": 1}])
        assert sum_by(rows, "bidder", "bids") == count_rows(
            [{"bidder": 1, "bids": 6}, {"bidder": 2, "bids": 1}]
        )

    def test_missing_rows_and_rows_too_many_are_shown(self) -> None:
        with pytest.raises(AssertionError, match="1 of 2 rows are missing, 2 are too many"):
            check_same(count_rows([{"n": 1}, {"n": 1}, {"n": 3}]), pa.table({"n": [1, 2]}))
        with pytest.raises(AssertionError, match="proves nothing"):
            check_same(count_rows([]), pa.table({"n": []}))
