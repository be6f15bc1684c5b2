"""q13: bids with the value of a static table."""

from examples.nexmark.job import Stream, Streams


def build(streams: Streams) -> Stream:
    """Every bid whose key is in the table."""
    named = streams.bids.key_by("auction % 10000 AS key").lookup("side", streams.side, how="inner")
    return named.select("auction", "bidder", "price", "ts", "value")
