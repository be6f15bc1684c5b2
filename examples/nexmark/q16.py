"""q16: per channel and day, how many bids, bidders and auctions, in all and in each range of prices."""

from functools import partial

from examples.nexmark.expressions import DAY, ranked
from examples.nexmark.job import Stream, Streams

import lakestate as ls


def build(streams: Streams) -> Stream:
    """The current figures of every channel and day with new bids."""
    return streams.bids.key_by("channel", DAY).aggregate(
        "figures",
        minute=ls.max("date_format(ts, 'HH:mm')"),
        **ranked("bids", ls.count),
        **ranked("bidders", partial(ls.count_distinct, "bidder")),
        **ranked("auctions", partial(ls.count_distinct, "auction")),
    )
