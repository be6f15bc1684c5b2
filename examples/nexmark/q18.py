"""q18: the last bid of every bidder on every auction."""

from examples.nexmark.job import Stream, Streams


def build(streams: Streams) -> Stream:
    """Each bid that is newer than the bidder's last one on the auction."""
    return streams.bids.key_by("bidder", "auction").deduplicate("last", keep="last", within="for ever")
