"""q7: the highest bids of each ten seconds."""

from examples.nexmark.job import Stream, Streams

import lakestate as ls


def build(streams: Streams) -> Stream:
    """All bids with the highest price of their window, when it is over."""
    highest = streams.bids.window(ls.Tumbling("10 seconds")).aggregate("highest", top=ls.max("price"))
    return (
        streams.bids.select("auction", "bidder", "price", "ts", "extra")
        .key_by("price")
        .join("best", highest.key_by("top"), within=("0 seconds", "10 seconds"))
        .where("ts >= window_start")
        .select("auction", "bidder", "price", "ts", "extra")
    )
