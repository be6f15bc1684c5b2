"""A running count and sum per user, and a sink that keeps rows as JSON: for tests of pipelines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import lakestate as ls
from lakestate.testing.auctions import AuctionHouse


class Totals(ls.Operator):
    """Counts and sums per user; yields the new totals of every user that had rows."""

    output = "user string, n bigint, spend double"
    totals = ls.KeyedTable(key="user string", value="n bigint, spend double")

    def process_batch(self, batch, ctx):
        grouped = pa.table(batch).group_by("user").aggregate([("amount", "count"), ("amount", "sum")])
        before = ctx.totals.get(grouped)
        rows = pa.table(
            {
                "user": grouped["user"],
                "n": pc.add(grouped["amount_count"], before.column("n").fill_null(0)),
                "spend": pc.add(grouped["amount_sum"], before.column("spend").fill_null(0.0)),
            }
        )
        self.totals.put(rows)
        yield rows


def totals_after_each(epochs: Iterable[Sequence[tuple[str | None, float]]]) -> list[tuple[Any, ...]]:
    """The oracle: the totals of every user after every epoch that has rows (user, amount) of the user."""
    count, spend, rows = Counter[str | None](), Counter[str | None](), []
    for epoch in epochs:
        for user, amount in epoch:
            count[user] += 1
            spend[user] += amount
        rows += [(user, count[user], float(spend[user])) for user in {user for user, _ in epoch}]
    return sorted(rows, key=str)


def bids_of(seed: int, epochs: int, rows_per_epoch: int) -> Iterable[list[tuple[str, float]]]:
    """The bids that each epoch of an auction reads, as rows of bidder and price."""
    for start in range(0, epochs * rows_per_epoch, rows_per_epoch):
        bids = AuctionHouse(seed).rows("bids", start, start + rows_per_epoch, ["bidder", "price"])
        yield [(str(bid["bidder"]), bid["price"]) for bid in bids.to_pylist()]
