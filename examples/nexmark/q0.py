"""q0: every bid as it is. What remains is the cost of moving rows."""

from examples.nexmark.job import Stream, Streams


def build(streams: Streams) -> Stream:
    """Bids."""
    return streams.bids
