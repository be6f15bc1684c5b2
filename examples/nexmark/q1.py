"""q1: bids with the price in another currency."""

from examples.nexmark.job import Stream, Streams


def build(streams: Streams) -> Stream:
    """Bids, with prices as exact decimals."""
    return streams.bids.select("auction", "bidder", "0.908 * price AS price", "ts", "extra")
