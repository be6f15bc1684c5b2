"""q5: the auctions with the most bids in each window of 10 seconds, every 2 seconds."""

from examples.nexmark.job import Stream, Streams

import lakestate as ls


def build(streams: Streams) -> Stream:
    """All auctions that share the first place. Windows end every 2 seconds, so those are ranked together."""
    counts = (
        streams.bids.key_by("auction")
        .window(ls.Hopping("10 seconds", every="2 seconds"))
        .aggregate("counts", bids=ls.count())
    )
    hot = counts.window(ls.Tumbling("2 seconds")).top("hot", n=1, by="bids desc", ties="all")
    return hot.select("window_start", "window_end", "auction", "bids")
