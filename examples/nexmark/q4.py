"""q4: per category, the mean of the highest bids so far on its auctions."""

from examples.nexmark.job import AUCTION_OPEN_MAX, Stream, Streams

import lakestate as ls


def build(streams: Streams) -> Stream:
    """How the means change, because a higher bid replaces the one that was counted."""
    auctions = streams.auctions.select("id", "category", "ts", "expires")
    bids = streams.bids.select("auction", "price", "ts")
    tops = (
        auctions.key_by("id")
        .join(
            "bids", bids.key_by("auction"), within=("0 seconds", AUCTION_OPEN_MAX), prefix=("open_", "bid_")
        )
        .where("bid_ts <= expires")
        .key_by("id", "category")
        .aggregate("tops", emit="changes", price=ls.max("price"))
    )
    return tops.key_by("category").aggregate("means", mean_price=ls.mean("price"))
