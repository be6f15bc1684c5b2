"""q12: how many bids a bidder makes in each ten seconds of processing time."""

from examples.nexmark.job import Stream, Streams

import lakestate as ls


def build(streams: Streams) -> Stream:
    """Windows whose time has passed."""
    window = ls.Tumbling("10 seconds", time="processing")
    return streams.bids.key_by("bidder").window(window).aggregate("per_window", bids=ls.count())
