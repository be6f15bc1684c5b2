"""q10: bids as files, by day and minute."""

from examples.nexmark.job import Stream, Streams

from lakestate.sinks.partitioning import EventTime

PARTITION_BY = (EventTime("day=%Y-%m-%d/minute=%H-%M"),)


def build(streams: Streams) -> Stream:
    """Bids. The sink makes folders of their times."""
    return streams.bids.select("auction", "bidder", "price", "ts", "extra")
