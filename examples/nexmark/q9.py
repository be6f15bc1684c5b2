"""q9: the winning bid of every auction: the highest, then the earliest, between its start and its end."""

from examples.nexmark.job import AUCTION_OPEN_MAX, Stream, Streams


def build(streams: Streams) -> Stream:
    """The bids that win so far, as they change."""
    bids = streams.bids.select("auction", "bidder", "price", "ts", "extra").key_by("auction")
    return (
        streams.auctions.key_by("id")
        .join("bids", bids, within=("0 seconds", AUCTION_OPEN_MAX), prefix=("", "bid_"))
        .where("bid_ts <= expires")
        .key_by("id")
        .top("winning", n=1, by="price desc, bid_ts, bidder, bid_extra")
    )
