"""q22: bids with three parts of the path of their url."""

from examples.nexmark.job import Stream, Streams


def build(streams: Streams) -> Stream:
    """Bids, with the parts as columns."""
    parts = [f"split_part(url, '/', {place}) AS dir{place - 3}" for place in (4, 5, 6)]
    return streams.bids.select("auction", "bidder", "price", "channel", *parts)
