"""q17: per auction and day, how many bids in each range of prices, and what they amount to."""

from examples.nexmark.expressions import DAY, ranked
from examples.nexmark.job import Stream, Streams

import lakestate as ls


def build(streams: Streams) -> Stream:
    """The current figures of every auction and day with new bids."""
    return streams.bids.key_by("auction", DAY).aggregate(
        "figures",
        **ranked("bids", ls.count),
        min_price=ls.min("price"),
        max_price=ls.max("price"),
        mean_price=ls.mean("price"),
        sum_price=ls.sum("price"),
    )
