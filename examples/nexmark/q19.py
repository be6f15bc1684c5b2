"""q19: the ten highest bids of every auction."""

from examples.nexmark.job import Stream, Streams


def build(streams: Streams) -> Stream:
    """The bids at ranks that have changed."""
    return streams.bids.key_by("auction").top("best", n=10, by="price desc, ts")
