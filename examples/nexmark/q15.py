"""q15: per day, how many bids, bidders and auctions, in all and in each range of prices."""

from functools import partial

from examples.nexmark.expressions import DAY, ranked
from examples.nexmark.job import Stream, Streams

import lakestate as ls


def build(streams: Streams) -> Stream:
    """The current figures of every day with new bids."""
    return streams.bids.key_by(DAY).aggregate(
        "figures",
        **ranked("bids", ls.count),
        **ranked("bidders", partial(ls.count_distinct, "bidder")),
        **ranked("auctions", partial(ls.count_distinct, "auction")),
    )
