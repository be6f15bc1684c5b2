"""q17: per auction and day, how many bids in each range of prices, and what they amount to."""

from examples.nexmark.job import Stream, Streams

import lakestate as ls


def build(streams: Streams) -> Stream:
    """The current figures of every auction and day with new bids."""
    return streams.bids.key_by("auction", "date_format(ts, 'yyyy-MM-dd') AS day").aggregate(
        "figures",
        total_bids=ls.count(),
        rank1_bids=ls.count(where="price < 10000"),
        rank2_bids=ls.count(where="price >= 10000 AND price < 1000000"),
        rank3_bids=ls.count(where="price >= 1000000"),
        min_price=ls.min("price"),
        max_price=ls.max("price"),
        mean_price=ls.mean("price"),
        sum_price=ls.sum("price"),
    )
