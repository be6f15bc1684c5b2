"""q7: the highest bids of each window of 10 seconds."""

from examples.nexmark.job import Stream, Streams

import lakestate as ls


def build(streams: Streams) -> Stream:
    """All bids that share the highest price of their window."""
    bids = streams.bids.select("auction", "bidder", "price", "ts", "extra")
    best = bids.window(ls.Tumbling("10 seconds")).top("best", n=1, by="price desc", ties="all")
    return best.select("auction", "bidder", "price", "ts", "extra")
