"""q2: the bids of some auctions."""

from examples.nexmark.job import Stream, Streams


def build(streams: Streams) -> Stream:
    """Auctions and prices."""
    return streams.bids.where("auction % 123 = 0").select("auction", "price")
