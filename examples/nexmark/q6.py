"""q6: the mean closing price of the last ten auctions of every seller that are closed."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from examples.nexmark.job import AUCTION_OPEN_MAX, Stream, Streams

import lakestate as ls

MOMENT = timedelta(microseconds=1)


class Closing(ls.KeyedFunction):
    """The highest bid of an auction, once it is closed: a bid at the very moment of its end still counts."""

    output = "id bigint, seller bigint, expires timestamp, price bigint"
    timers = "event"
    highest = ls.ValueState("bigint", default=0)

    def process(self, key: Any, rows: Any, state: Any) -> None:
        """Keep the highest bid so far."""
        *_, expires = key
        state.highest = max(state.highest, *(row.price for row in rows))
        state.timers.at(expires + MOMENT)

    def on_timer(self, key: Any, time: Any, state: Any) -> Iterator[Any]:
        """The auction is closed."""
        yield *key, state.highest
        state.clear()


def build(streams: Streams) -> Stream:
    """The means that change, because an auction was closed."""
    auctions = streams.auctions.select("id", "seller", "ts", "expires").key_by("id")
    bids = streams.bids.select("auction", "price", "ts").key_by("auction")
    open_for = ("0 seconds", AUCTION_OPEN_MAX)
    return (
        auctions.join("bids", bids, within=open_for, prefix=("open_", "bid_"))
        .where("bid_ts <= expires")
        .key_by("id", "seller", "expires")
        .process("closing", Closing())
        .key_by("seller")
        .top("last_ten", n=10, by="expires desc, id desc", emit="changes")
        .key_by("seller")
        .aggregate("means", mean_price=ls.mean("price"))
    )
