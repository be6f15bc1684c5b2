"""q11: how many bids a bidder makes in each session of activity."""

from examples.nexmark.job import Stream, Streams

import lakestate as ls


def build(streams: Streams) -> Stream:
    """Sessions that are over."""
    return streams.bids.key_by("bidder").window(ls.Session("10 seconds")).aggregate("visits", bids=ls.count())
