"""q20: bids with their auction, of category 10."""

from examples.nexmark.job import Stream, Streams


def build(streams: Streams) -> Stream:
    """Each bid with its auction, whichever comes first: nothing is forgotten."""
    auctions = streams.auctions.where("category = 10").key_by("id")
    return streams.bids.key_by("auction").join("open", auctions, keep="for ever", prefix=("", "auction_"))
